// Error against bits of state.
const BITS = { left: 44, right: 12, top: 18, bottom: 40 };
const ASKED = ["regression-2.sudo-16.20", "regression-2.sudo-256.10"];
let shownPoints = [];
let currentPoint = -1;

for (const experiment of data.bits) {
  const option = element("option", experiment.title, byId("bits-experiment"));
  option.value = experiment.name;
}
byId("bits-experiment").value = "regression";

// Round numbers of a logarithmic axis.
function powers(low, high) {
  const found = [];
  const fine = Math.log10(high / low) < 2.5;
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
    for (const part of fine ? [1, 2, 5] : [1]) {
      const value = Number((part * 10 ** power).toPrecision(3));
      if (value >= low && value <= high) found.push(value);
    }
  }
  return found;
}

function logarithmic(values, from, to) {
  const room = (Math.max(...values) / Math.min(...values)) ** 0.04 * 1.02;
  const low = Math.min(...values) / room;
  const high = Math.max(...values) * room;
  const at = (value) => from + (Math.log(value / low) / Math.log(high / low)) * (to - from);
  return { at, ticks: powers(low, high) };
}

const SHAPES = [
  (x, y, r) => `M${x - r},${y}a${r},${r} 0 1 0 ${2 * r},0a${r},${r} 0 1 0 ${-2 * r},0Z`,
  (x, y, r) => `M${x - r},${y - r}h${2 * r}v${2 * r}h${-2 * r}Z`,
  (x, y, r) => `M${x},${y - 1.2 * r}l${1.2 * r},${2.1 * r}h${-2.4 * r}Z`,
  (x, y, r) => `M${x},${y - 1.35 * r}l${1.35 * r},${1.35 * r}l${-1.35 * r},${1.35 * r}l${-1.35 * r},${-1.35 * r}Z`,
];

function drawKey(groups, rectified) {
  const key = byId("bits-key");
  key.replaceChildren();
  const item = (text, draw) => {
    const line = document.createElement("li");
    draw(svg("svg", { viewBox: "0 0 40 16", "aria-hidden": "true" }, line));
    line.append(text);
    key.append(line);
  };
  groups.forEach((group, k) => {
    item(group, (to) => svg("path", { class: "point", d: SHAPES[k](20, 8, 4.5) }, to));
  });
  if (rectified) item("hollow: rectified", (to) => svg("path", { class: "point hollow", d: SHAPES[0](20, 8, 4.5) }, to));
  item("larger: more levels", (to) => {
    svg("path", { class: "point", d: SHAPES[0](10, 8, 3) }, to);
    svg("path", { class: "point", d: SHAPES[0](27, 8, 6) }, to);
  });
  item("Pareto front", (to) => svg("path", { class: "front", d: "M2,4H20V11H38" }, to));
}

function drawBits() {
  const experiment = data.bits.find((one) => one.name === byId("bits-experiment").value);
  const side = chosen("bits-side");
  const rectified = byId("bits-rectified").checked;
  const groups = [...new Set(experiment.points.map((point) => point.group))];
  shownPoints = experiment.points.filter((point) => point[side] > 0 && (rectified || !point.rectified));
  currentPoint = -1;
  const all = experiment.points.filter((point) => rectified || !point.rectified).length;
  byId("bits-said").textContent = `${shownPoints.length} of ${all} networks have a value.`;
  drawKey(groups, rectified && experiment.points.some((point) => point.rectified));
  const { left, right, top, bottom } = BITS;
  const width = Math.max(280, byId("bits-chart").clientWidth);
  const height = Math.round(Math.min(500, Math.max(320, 0.6 * width)));
  const chart = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img" });
  byId("bits-chart").replaceChildren(chart);
  const body = byId("bits-front").tBodies[0];
  body.replaceChildren();
  if (!shownPoints.length) {
    label(chart, width / 2, height / 2, `Nothing of ${experiment.title} has been run: choose published, or run sudonet reproduce`);
    chart.setAttribute("aria-label", `${experiment.title}: nothing has been run`);
    return;
  }
  const x = logarithmic(shownPoints.map((point) => point.bits), left, width - right);
  const y = logarithmic(shownPoints.map((point) => point[side]), height - bottom, top);
  for (const value of y.ticks) {
    svg("line", { class: "grid", x1: left, x2: width - right, y1: y.at(value), y2: y.at(value) }, chart);
    label(chart, left - 7, y.at(value) + 3.5, `${value}`, "end");
  }
  for (const value of x.ticks) {
    svg("line", { class: "grid", x1: x.at(value), x2: x.at(value), y1: top, y2: height - bottom }, chart);
    label(chart, x.at(value), height - bottom + 16, value.toLocaleString("en"));
  }
  label(chart, left, top - 4, experiment.error, "start");
  label(chart, width - right, height - 6, "bits of state", "end");

  const front = experiment.fronts[side][rectified ? "all" : "sudo"].map((index) => experiment.points[index]);
  let path = "";
  for (const point of front) {
    const [a, b] = [x.at(point.bits).toFixed(1), y.at(point[side]).toFixed(1)];
    path += path ? `H${a}V${b}` : `M${a},${b}`;
    const row = document.createElement("tr");
    element("th", point.name, row).scope = "row";
    element("td", Math.round(point.bits).toLocaleString("en"), row).className = "n";
    element("td", `${Number(point[side].toPrecision(4))}`, row).className = "n";
    body.append(row);
  }
  svg("path", { class: "front", d: `${path}H${width - right}` }, chart);
  const asked = [];
  // Those of the question come last and so on top.
  const layers = [...shownPoints].sort((a, b) => ASKED.includes(a.cell) - ASKED.includes(b.cell));
  layers.forEach((point) => {
    const size = 2.4 + 0.42 * Math.log2(point.levels);
    const isAsked = ASKED.includes(point.cell);
    const shape = SHAPES[groups.indexOf(point.group)](x.at(point.bits), y.at(point[side]), size);
    const node = svg("path", { d: shape, "data-cell": point.cell, class: "point" }, chart);
    node.classList.toggle("hollow", point.rectified);
    node.classList.toggle("asked", isAsked);
    if (isAsked) {
      const units = point.cell.split(".")[2];
      asked.push([x.at(point.bits), y.at(point[side]), `${units} units, L = ${point.levels}`]);
    }
  });
  // No point lies below the front: there is room for the label of the better one.
  asked.sort((a, b) => a[1] - b[1]);
  asked.forEach(([a, b, text], k) => label(chart, k ? a - 6 : a + 8, k ? b + 18 : b - 9, text, k ? "end" : "start", "asked-label"));
  chart.setAttribute("aria-label", `${experiment.title}, ${side}: ${shownPoints.length} networks, ${front.length} on the Pareto front`);
}

byId("bits-chart").addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step || !shownPoints.length) return;
  event.preventDefault();
  currentPoint = (currentPoint + step + shownPoints.length) % shownPoints.length;
  const point = shownPoints[currentPoint];
  byId("bits-chart").querySelector(".current")?.classList.remove("current");
  const node = byId("bits-chart").querySelector(`[data-cell="${point.cell}"]`);
  node.classList.add("current");
  byId("bits-said").textContent =
    `${point.name}: ${Math.round(point.bits).toLocaleString("en")} bits, error ${Number(point[chosen("bits-side")].toPrecision(4))}`;
  showTip(point.cell, node.getBoundingClientRect());
});
byId("bits-chart").addEventListener("focusout", hideTip);
for (const id of ["bits-experiment", "bits-side", "bits-rectified"]) byId(id).addEventListener("change", drawBits);
whenResized(byId("bits-chart"), drawBits);
drawBits();
