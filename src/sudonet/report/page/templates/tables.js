// Tables: three views, sorting, and cells that the arrow keys reach.
const blocks = [...document.querySelectorAll(".block")];

function setView(block, view) {
  block.dataset.view = view;
  const input = block.querySelector(`.switch input[value="${view}"]`);
  if (input) input.checked = true;
  const sorted = block.querySelector("th[aria-sort]:not([aria-sort=none]) button");
  if (sorted) sortBy(block, sorted, false);
}

for (const group of document.querySelectorAll("[data-switch]")) {
  group.addEventListener("change", (event) => {
    const some = group.dataset.switch === "all" ? blocks : [group.closest(".block")];
    for (const block of some) setView(block, event.target.value);
  });
}

// How good a cell is in the view that is shown; NaN where it has no number.
function goodness(block, cell) {
  const text = cell.dataset[block.dataset.view];
  return text === undefined ? NaN : Number(text) * (block.dataset.higher === "1" ? 1 : -1);
}

function sortBy(block, button, turn) {
  const body = block.querySelector(".heat tbody");
  const heads = [...block.querySelectorAll("th[aria-sort]")];
  if (button.dataset.sort === "none") {
    for (const head of heads) head.setAttribute("aria-sort", "none");
    body.append(...body.sudonetOrder);
    return;
  }
  const column = Number(button.dataset.sort);
  const head = heads[column];
  // Best first: the highest accuracy comes on top, and so does the lowest error.
  const best = block.dataset.higher === "1" ? "descending" : "ascending";
  const worst = best === "ascending" ? "descending" : "ascending";
  const direction = turn ? (head.getAttribute("aria-sort") === best ? worst : best) : head.getAttribute("aria-sort");
  for (const other of heads) other.setAttribute("aria-sort", other === head ? direction : "none");
  const sign = direction === best ? 1 : -1;
  const keyed = body.sudonetOrder.map((row) => [row, goodness(block, row.cells[column + 1])]);
  keyed.sort(([, a], [, b]) => Number.isNaN(a) - Number.isNaN(b) || sign * (b - a) || 0);
  body.append(...keyed.map(([row]) => row));
}

for (const block of blocks) {
  const body = block.querySelector(".heat tbody");
  body.sudonetOrder = [...body.rows];
  for (const button of block.querySelectorAll("th button")) {
    button.addEventListener("click", () => sortBy(block, button, true));
  }
  // One stop of the tab key a table; arrow keys go from cell to cell.
  let current = body.rows[0].cells[1];
  current.tabIndex = 0;
  const go = (cell) => {
    current.tabIndex = -1;
    current = cell;
    cell.tabIndex = 0;
    cell.focus();
  };
  body.addEventListener("keydown", (event) => {
    const cell = event.target.closest("td");
    if (!cell) return;
    const row = cell.parentElement;
    const targets = {
      ArrowLeft: row.cells[cell.cellIndex - 1],
      ArrowRight: row.cells[cell.cellIndex + 1],
      ArrowUp: row.previousElementSibling?.cells[cell.cellIndex],
      ArrowDown: row.nextElementSibling?.cells[cell.cellIndex],
      Home: row.cells[1],
      End: row.cells[row.cells.length - 1],
    };
    if (!(event.key in targets)) return;
    event.preventDefault();
    const target = targets[event.key];
    if (target && target.matches("td")) go(target);
  });
  body.addEventListener("click", (event) => {
    const cell = event.target.closest("td");
    if (cell) go(cell);
  });
  body.addEventListener("focusin", (event) => {
    const cell = event.target.closest("td");
    if (!cell) return;
    showTip(cell.dataset.cell, cell.getBoundingClientRect());
    cell.setAttribute("aria-describedby", "tip");
  });
  body.addEventListener("focusout", hideTip);
}
