// What all parts of the page share: its data, SVG, and the box with a cell's details.
const data = JSON.parse(document.getElementById("page-data").textContent);
const byId = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";

function svg(name, attributes, parent) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (parent) parent.append(node);
  return node;
}

function element(name, text, parent) {
  const node = document.createElement(name);
  node.textContent = text;
  if (parent) parent.append(node);
  return node;
}

function label(parent, x, y, text, anchor, className) {
  const node = svg("text", { x, y, "text-anchor": anchor || "middle" }, parent);
  if (className) node.setAttribute("class", className);
  node.textContent = text;
  return node;
}

// Draws again whenever the place of a chart has become wider or narrower.
function whenResized(place, draw) {
  let width = 0;
  new ResizeObserver(([entry]) => {
    const now = Math.round(entry.contentRect.width);
    if (now && now !== width) {
      width = now;
      draw();
    }
  }).observe(place);
}

const chosen = (name) => document.querySelector(`input[name="${name}"]:checked`).value;

// Numbers as the tables write them, with a true minus sign.
const written = (value, digits) => value.toFixed(digits).replace("-", "−");

const tip = byId("tip");

function showTip(id, at) {
  if (!data.details[id]) return;
  const [title, lines] = data.details[id];
  const list = document.createElement("dl");
  for (const [name, text] of lines) {
    element("dt", name, list);
    element("dd", text, list);
  }
  tip.replaceChildren(element("strong", title), list);
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const below = at.bottom + 8 + box.height < window.innerHeight;
  const top = below ? at.bottom + 8 : Math.max(4, at.top - 8 - box.height);
  const left = Math.min(Math.max(8, at.left), document.documentElement.clientWidth - box.width - 8);
  tip.style.top = `${top}px`;
  tip.style.left = `${Math.max(8, left)}px`;
}

function hideTip() {
  tip.hidden = true;
  document.querySelector("[aria-describedby=tip]")?.removeAttribute("aria-describedby");
}

document.addEventListener("pointerover", (event) => {
  const cell = event.target.closest?.("[data-cell]");
  if (cell) showTip(cell.dataset.cell, cell.getBoundingClientRect());
});
// Back to the cell that has the keyboard's focus, if one has.
function restTip() {
  const cell = document.activeElement;
  if (!tip.hidden && cell?.matches("td[data-cell]")) showTip(cell.dataset.cell, cell.getBoundingClientRect());
  else hideTip();
}
document.addEventListener("pointerout", (event) => {
  if (event.target.closest?.("[data-cell]")) restTip();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") hideTip();
});
window.addEventListener("scroll", restTip, { passive: true });

// Closed details would be missing from a print.
let opened = [];
window.addEventListener("beforeprint", () => {
  opened = [...document.querySelectorAll("details:not([open])")];
  for (const one of opened) one.open = true;
});
window.addEventListener("afterprint", () => {
  for (const one of opened) one.open = false;
});
