"""A web site on this machine, for tests of what goes wrong in downloads."""

import contextlib
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextlib.contextmanager
def serving():
    """A site that runs."""
    with Site() as site:
        thread = threading.Thread(target=site.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield site
        finally:
            site.shutdown()
            thread.join()


class Site(ThreadingHTTPServer):
    """Serves ``files``; can be told to misbehave."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = {}
        self.ranges = True
        self.lengths = True
        self.cut = None  # bytes after which it hangs up
        self.shift = 0  # bytes by which it misunderstands a range
        self.delay = 0.0
        self.asked = []  # (path, range) of every request

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}/"


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        site = self.server
        wanted = self.headers.get("Range")
        site.asked.append((self.path, wanted))
        time.sleep(site.delay)
        content = site.files.get(self.path.removeprefix("/"))
        if content is None:
            return self.send_error(404)
        body, start = content, 0
        if wanted and site.ranges:
            start = int(re.fullmatch(r"bytes=(\d+)-", wanted)[1]) - site.shift
            if start >= len(content):
                return self.send_error(416)
            body = content[start:]
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        else:
            self.send_response(200)
        if site.lengths:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with contextlib.suppress(ConnectionError):  # a client may have had enough
            self.wfile.write(body[: site.cut])
        return None
