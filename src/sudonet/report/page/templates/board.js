// The board that changes with the number of levels, from recorded networks.
function paint(canvas, index) {
  const { side, scale } = data.board;
  const pixels = new ImageData(side, side);
  for (let y = 0; y < side; y++) {
    for (let x = 0; x < side; x++) {
      // The first row of a board is its lowest.
      const [red, green, blue] = scale[boards[(index * side + side - 1 - y) * side + x]];
      pixels.data.set([red, green, blue, 255], 4 * (y * side + x));
    }
  }
  const small = new OffscreenCanvas(side, side);
  small.getContext("2d").putImageData(pixels, 0, 0);
  const context = canvas.getContext("2d");
  context.imageSmoothingEnabled = false;
  context.drawImage(small, 0, 0, canvas.width, canvas.height);
}

function showBoard(index) {
  const name = data.board.names[index];
  paint(byId("board-large"), index);
  const text = `${name}: ${data.board.values[index].toFixed(1)} % of the board has the right colour`;
  byId("board-large").setAttribute("aria-label", text);
  byId("board-said").textContent = `${text}.`;
}

const boards = data.board ? Uint8Array.from(atob(data.board.boards), (c) => c.charCodeAt(0)) : null;
if (boards) {
  // tanh and relu come first in the file; here the levels do.
  const order = data.board.names.map((_, k) => k);
  const strip = byId("board-strip");
  const first = data.board.names.indexOf("sudo-4");
  for (const index of [...order.slice(2), ...order.slice(0, 2)]) {
    const item = document.createElement("label");
    const input = document.createElement("input");
    Object.assign(input, { type: "radio", name: "board", value: `${index}`, checked: index === first });
    const picture = document.createElement("canvas");
    picture.width = picture.height = data.board.side;
    picture.setAttribute("aria-hidden", "true");
    item.append(input, picture);
    element("b", data.board.names[index], item);
    item.append(` ${data.board.values[index].toFixed(1)} %`);
    strip.append(item);
    paint(picture, index);
  }
  strip.addEventListener("change", () => showBoard(Number(chosen("board"))));
  showBoard(first);
}
