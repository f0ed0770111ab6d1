"""Reads a page's elements, for tests without a browser."""

import json
from html.parser import HTMLParser

VOID = {"meta", "img", "input", "br", "link"}


class Element:
    """A tag, its attributes, and the text in it and below it."""

    def __init__(self, tag, attributes, parents):
        self.tag, self.attributes, self.parents = tag, dict(attributes), parents
        self.text = ""

    def __getitem__(self, name):
        return self.attributes[name]

    def get(self, name):
        return self.attributes.get(name)

    def classes(self):
        return (self.get("class") or "").split()

    def within(self, **attributes):
        """Whether it lies in an element with these attributes."""
        return any(
            all(parent.get(name) == value for name, value in attributes.items())
            for parent in self.parents
        )


class Page(HTMLParser):
    """All elements of a page, in their order."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.elements, self._open = [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        element = Element(tag, attributes, tuple(self._open))
        self.elements.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_startendtag(self, tag, attributes):
        self.elements.append(Element(tag, attributes, tuple(self._open)))

    def handle_endtag(self, tag):
        assert self._open.pop().tag == tag, f"</{tag}> closes another element"

    def handle_data(self, text):
        for element in self._open:
            element.text += text

    def all(self, tag, **attributes):
        return [
            element
            for element in self.elements
            if element.tag == tag and all(element.get(k) == v for k, v in attributes.items())
        ]

    def one(self, tag, **attributes):
        (found,) = self.all(tag, **attributes)
        return found

    def section(self, name):
        return self.one("section", id=name)

    @property
    def data(self):
        """What the page's script reads."""
        return json.loads(self.one("script", id="page-data").text)
