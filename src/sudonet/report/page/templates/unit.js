// The unit, as sudonet.Staircase defines it; a test compares the two.
function logits(levels) {
  // logit(j / L), j = 1..L-1: log1p on the upper half, mirrored to the lower one.
  const found = new Array(levels - 1);
  for (let j = levels - 1; j >= 1; j--) {
    found[j - 1] = 2 * j >= levels ? Math.log1p((2 * j - levels) / (levels - j)) : -found[levels - j - 1];
  }
  return found;
}

function staircase(levels, kind) {
  const top = levels - 1;
  const codes = Array.from({ length: levels }, (_, k) => k);
  let thresholds = logits(kind === "rectified-full" ? 2 * levels : levels);
  let values = codes.map((k) => (2 * k - top) / top);
  if (kind === "sigmoid" || kind === "rectified-full") values = codes.map((k) => k / top);
  if (kind === "rectified-full") thresholds = thresholds.slice(levels);
  if (kind !== "sigmoid") thresholds = thresholds.map((t) => t / 2);
  if (kind === "rectified") {
    thresholds = thresholds.filter((t) => t >= 0);
    values = [0, ...values.slice(values.length - thresholds.length)];
  }
  const rectified = kind.startsWith("rectified");
  const tail = (x) => Math.exp(-Math.abs(x)) / (1 + Math.exp(-Math.abs(x))) ** 2;
  return {
    thresholds,
    values,
    outputs: values.length,
    bits: (values.length - 1).toString(2).length,
    // How many thresholds lie strictly below an input.
    code(x) {
      let low = 0;
      let high = thresholds.length;
      while (low < high) {
        const middle = (low + high) >> 1;
        if (thresholds[middle] < x) low = middle + 1;
        else high = middle;
      }
      return low;
    },
    smooth(x) {
      if (rectified && x < 0) return 0;
      return kind === "sigmoid" ? (Math.tanh(x / 2) + 1) / 2 : Math.tanh(x);
    },
    derivative(x) {
      if (rectified && x < 0) return 0;
      return kind === "sigmoid" ? tail(x) : 4 * tail(2 * x);
    },
  };
}
window.sudonet = { staircase };

const UNIT = { left: 40, right: 8, top: 10, high: 250, gap: 34, low: 120 };

function drawUnit(unit, kind, x) {
  const place = byId("unit-chart");
  const { left, right, top, high, gap, low } = UNIT;
  const width = Math.max(280, place.clientWidth);
  const reach = kind === "sigmoid" ? 7 : 3.5;
  const floor = kind === "tanh" ? -1 : 0;
  const steepest = kind === "sigmoid" ? 0.25 : 1;
  const height = top + high + gap + low + 22;
  const chart = svg("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
  const toX = (value) => left + ((value + reach) / (2 * reach)) * (width - left - right);
  const toY = (value) => top + high - ((value - floor + 0.06) / (1.12 - floor)) * high;
  const second = top + high + gap;
  const toSlope = (value) => second + low - (value / (1.15 * steepest)) * low;
  for (const value of floor < 0 ? [-1, -0.5, 0, 0.5, 1] : [0, 0.25, 0.5, 0.75, 1]) {
    svg("line", { class: "grid", x1: left, x2: width - right, y1: toY(value), y2: toY(value) }, chart);
    label(chart, left - 6, toY(value) + 3.5, written(value, 2).replace(/\.?0+$/, ""), "end");
  }
  for (const share of [0, 0.5, 1]) {
    const y = toSlope(share * steepest);
    svg("line", { class: "grid", x1: left, x2: width - right, y1: y, y2: y }, chart);
    label(chart, left - 6, y + 3.5, `${share * steepest}`, "end");
  }
  for (let value = -Math.floor(reach); value <= reach; value++) {
    label(chart, toX(value), second + low + 16, written(value, 0));
  }
  label(chart, left, second - 8, "derivative in training", "start");
  const every = Array.from({ length: 361 }, (_, k) => -reach + (k / 360) * 2 * reach);
  const path = (points) => `M${points.map(([a, b]) => `${a.toFixed(2)},${b.toFixed(2)}`).join("L")}`;
  svg("path", { class: "smooth", d: path(every.map((v) => [toX(v), toY(unit.smooth(v))])) }, chart);
  const ends = [-reach, ...unit.thresholds, reach];
  const stairs = unit.values.flatMap((value, k) => [
    [toX(ends[k]), toY(value)],
    [toX(ends[k + 1]), toY(value)],
  ]);
  svg("path", { class: "line", id: "unit-stairs", d: path(stairs) }, chart);
  for (const t of unit.thresholds) {
    svg("line", { class: "rug", x1: toX(t), x2: toX(t), y1: top + high + 3, y2: top + high + 11 }, chart);
  }
  // Both sides of 0, so that a jump there stays upright.
  const slopes = [...every.filter((v) => v < 0), -Number.MIN_VALUE, ...every.filter((v) => v >= 0)];
  const curve = slopes.map((v) => [toX(v), toSlope(unit.derivative(v))]);
  const corners = [[toX(reach), toSlope(0)], [toX(-reach), toSlope(0)]];
  svg("path", { class: "slope-area", d: path([...curve, ...corners]) }, chart);
  svg("path", { class: "slope", d: path(curve) }, chart);
  svg("line", { class: "probe", x1: toX(x), x2: toX(x), y1: top, y2: second + low }, chart);
  svg("circle", { class: "dot", cx: toX(x), cy: toY(unit.values[unit.code(x)]), r: 5 }, chart);
  place.replaceChildren(chart);
}

function updateUnit() {
  const levels = Number(byId("unit-levels").value);
  const kind = chosen("unit-kind");
  const unit = staircase(levels, kind);
  const slider = byId("unit-input");
  const reach = kind === "sigmoid" ? 7 : 3.5;
  slider.min = -reach;
  slider.max = reach;
  const x = Number(slider.value);
  drawUnit(unit, kind, x);
  const widths = unit.thresholds.slice(1).map((t, k) => t - unit.thresholds[k]);
  const code = unit.code(x);
  byId("unit-said").textContent =
    `Input ${written(x, 2)} has code ${code} of 0 to ${unit.outputs - 1}: the unit emits ` +
    `${written(unit.values[code], 4)}, the function beneath it ${written(unit.smooth(x), 4)}.`;
  const between = widths.length ? (some) => some(...widths).toFixed(3) : () => "none";
  const lines = [
    ["values it can emit", `${unit.outputs}`],
    ["bits that tell them apart", `${unit.bits}`],
    ["step between values", (unit.values[unit.outputs - 1] - unit.values[unit.outputs - 2]).toFixed(4)],
    ["thresholds", `${unit.thresholds.length}`],
    ["narrowest inner plateau", between(Math.min)],
    ["widest inner plateau", between(Math.max)],
  ];
  const readout = byId("unit-readout");
  readout.replaceChildren();
  for (const [name, text] of lines) {
    element("dt", name, readout);
    element("dd", text, readout);
  }
  const over = kind === "sigmoid" ? "sigmoid" : kind === "tanh" ? "tanh" : "tanh, rectified";
  byId("unit-chart").setAttribute("aria-label", `Staircase of ${levels} levels over ${over}, and its derivative`);
}

byId("unit-levels").addEventListener("input", (event) => {
  byId("unit-number").value = event.target.value;
  updateUnit();
});
byId("unit-number").addEventListener("change", (event) => {
  const asked = Math.round(Number(event.target.value)) || 2;
  byId("unit-levels").value = Math.min(256, Math.max(2, asked));
  event.target.value = byId("unit-levels").value;
  updateUnit();
});
byId("unit-kind").addEventListener("change", updateUnit);
byId("unit-input").addEventListener("input", updateUnit);
whenResized(byId("unit-chart"), updateUnit);
updateUnit();
