
"use strict";
// Small charts: a line chart and a bar chart, each drawn again from its description at every poll.
// Names come from users, so text only ever enters as textContent.

const NUMBER = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const ROUGH = new Intl.NumberFormat("en", { maximumSignificantDigits: 2 });
const COMPACT = new Intl.NumberFormat("en", { maximumSignificantDigits: 3, notation: "compact" });
const MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(" ");
const UNITS = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];
const CLOCK_STEPS = [
  1, 5, 10, 30, 60, 300, 600, 1800, 3600, 10800, 21600, 43200, 86400, 172800, 604800, 2592000,
];

function number(value) {
  return Math.abs(value) >= 10000 ? COMPACT.format(value) : NUMBER.format(value);
}

function whole(count) {
  return count.toLocaleString("en");
}

function share(value) {
  return NUMBER.format(100 * value) + " %";
}

function span(seconds, format = NUMBER) {
  const [name, length] = spanUnit(seconds);
  const amount = format.format(seconds / length);
  return amount + " " + name + (amount === "1" ? "" : "s");
}

function clock(time, step = 1) {
  const date = new Date(time * 1000);
  const text = date.toISOString();
  if (step >= 86400) return date.getUTCDate() + " " + MONTHS[date.getUTCMonth()];
  return text.slice(11, step >= 60 ? 16 : 19);
}

function moment(time) {
  return clock(time, 86400) + " " + clock(time);
}

function element(name, properties = {}, children = []) {
  const made = document.createElement(name);
  Object.assign(made, properties);
  made.append(...children);
  return made;
}

function drawn(name, attributes = {}, text = "") {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  return made;
}

function roundStep(range, most) {
  const size = 10 ** Math.floor(Math.log10(range / most));
  return size * [1, 2, 5, 10].find((factor) => range / (size * factor) <= most);
}

// Each kind of axis: where the ticks are, and what stands next to them.
function numberTicks(low, high, most, format = number) {
  const step = roundStep(high - low, most);
  const first = Math.ceil(low / step - 1e-9);
  const count = Math.floor(high / step + 1e-9) - first + 1;
  const values = Array.from({ length: count }, (_, k) => (first + k) * step || 0);  // never -0
  return values.map((value) => [value, format(value)]);
}

function clockTicks(low, high, most) {
  const step = CLOCK_STEPS.find((step) => (high - low) / step <= most) || CLOCK_STEPS.at(-1);
  const ticks = [];
  for (let t = Math.ceil(low / step) * step; t <= high; t += step) ticks.push([t, clock(t, step)]);
  return ticks;
}

function spanUnit(high) {
  return UNITS.find(([, length]) => high >= 2 * length) || UNITS[3];
}

function spanTicks(low, high, most) {
  const [, length] = spanUnit(high);
  return numberTicks(low / length, high / length, most).map(([value, text]) => [value * length, text]);
}

// A figure holds its caption, a legend, the drawing, a tip and the same numbers as a table.
function chartOf(figure, label) {
  if (figure.chart) return figure.chart;
  const svg = drawn("svg", { class: "chart", tabindex: 0, role: "slider", "aria-label": label });
  const chart = {
    svg, at: null, move: null, pointed: false, rows: null,
    legend: element("div", { className: "legend" }),
    tip: element("div", { className: "tip", hidden: true }),
    empty: element("p", { className: "empty", hidden: true }),
    table: element("div", { className: "scroll", tabIndex: 0 }),
    details: element("details", {}, [element("summary", { textContent: "As a table" })]),
  };
  chart.table.setAttribute("role", "region");
  chart.table.setAttribute("aria-label", label + ", as a table");
  chart.details.append(chart.table);
  chart.details.addEventListener("toggle", () => fillTable(chart));
  figure.append(chart.legend, svg, chart.empty, chart.tip, chart.details);
  const point = (at) => { chart.pointed = at !== null; show(chart, at); };
  svg.addEventListener("pointermove", (event) => point(chart.nearest(event)));
  svg.addEventListener("pointerleave", () => point(null));
  svg.addEventListener("focus", () => { if (!chart.pointed) show(chart, chart.at ?? chart.first); });
  svg.addEventListener("blur", () => show(chart, null));
  svg.addEventListener("keydown", (event) => walk(chart, event));
  figure.chart = chart;
  return chart;
}

function walk(chart, event) {
  const at = chart.at ?? chart.first;
  const page = Math.max(1, Math.round(chart.count / 10));
  const moves = {
    ArrowRight: at + 1, ArrowLeft: at - 1, ArrowDown: at + chart.down, ArrowUp: at - chart.down,
    PageDown: at + page, PageUp: at - page, Home: 0, End: chart.count - 1,
  };
  if (event.key === "Escape") show(chart, null);
  if (!(event.key in moves) || !chart.count) return;
  event.preventDefault();
  show(chart, Math.min(Math.max(moves[event.key], 0), chart.count - 1));
}

function show(chart, at) {
  chart.at = at === null || !chart.count ? null : Math.min(at, chart.count - 1);
  chart.marker?.remove();
  chart.tip.hidden = chart.at === null;
  if (chart.at === null) return;
  const { marker, text, x, y } = chart.describe(chart.at);
  chart.marker = marker;
  chart.svg.append(marker);
  chart.tip.textContent = text;
  chart.svg.setAttribute("aria-valuenow", chart.at);
  chart.svg.setAttribute("aria-valuetext", text.replaceAll("\n", ", "));
  const room = chart.svg.clientWidth + 12 - chart.tip.offsetWidth;
  chart.tip.style.left = Math.max(8, Math.min(x + 20, room)) + "px";
  const tops = [chart.svg, chart.svg.parentNode].map((box) => box.getBoundingClientRect().top);
  chart.tip.style.top = tops[0] - tops[1] + y + "px";
}

function begin(chart, count, height, nothing) {
  chart.count = count;
  chart.svg.replaceChildren();
  chart.svg.toggleAttribute("hidden", !count);
  chart.legend.hidden = chart.details.hidden = !count;
  chart.empty.hidden = Boolean(count);
  chart.empty.textContent = nothing;
  chart.svg.setAttribute("aria-valuemin", 0);
  chart.svg.setAttribute("aria-valuemax", Math.max(count - 1, 0));
  chart.svg.setAttribute("height", height);
  return Math.max(chart.svg.clientWidth, 200);  // 0 for a moment while a window is resized
}

function finish(chart) {
  const at = chart.at;
  chart.svg.setAttribute("aria-valuenow", at ?? chart.first);
  chart.svg.setAttribute("aria-valuetext", chart.describe(at ?? chart.first).text.replaceAll("\n", ", "));
  if (at !== null) show(chart, at);
  fillTable(chart);
}

function fillTable(chart) {
  if (!chart.details.open || !chart.count) return;
  const cells = (row, kind) => row.map((text, column) => {
    const cell = element(column && kind === "td" ? "td" : "th", { textContent: text });
    if (cell.tagName === "TH") cell.scope = kind === "td" ? "row" : "col";
    return cell;
  });
  const head = element("thead", {}, [element("tr", {}, cells(chart.columns, "th"))]);
  const body = element("tbody", {}, chart.rows().map((row) => element("tr", {}, cells(row, "td"))));
  chart.table.replaceChildren(element("table", {}, [head, body]));
}

function path(points, step) {
  return points.map(([x, y], k) => (k ? (step ? `H${x}V${y}` : `L${x},${y}`) : `M${x},${y}`)).join("");
}

// Where the numbers of a line chart come to lie.
function scaleOf(spec, width) {
  const band = spec.band ? [...spec.band.lower, ...spec.band.upper] : [];
  const all = spec.lines.flatMap((line) => line.values).concat(band);
  const low = Math.min(0, ...all);
  const high = Math.min(spec.most ?? Infinity, Math.max(0, ...all) * 1.05 || 1);
  const box = { left: 50, right: width - 12, top: 24, bottom: 182 };
  const [first, last] = [spec.from ?? spec.x[0], spec.x.at(-1)];
  return {
    box, low, high, first, last,
    toX: (value) => box.left + ((value - first) / (last - first || 1)) * (box.right - box.left),
    toY: (value) => box.bottom - ((value - low) / (high - low)) * (box.bottom - box.top),
  };
}

function drawAxes(svg, spec, { box, low, high, first, last, toX, toY }) {
  const line = (style, x1, x2, y1, y2) => svg.append(drawn("line", { class: style, x1, x2, y1, y2 }));
  const write = (x, y, anchor, text) => svg.append(drawn("text", { x, y, "text-anchor": anchor }, text));
  for (const [value, text] of numberTicks(low, high, 5, spec.yText)) {
    line("grid-line", box.left, box.right, toY(value), toY(value));
    write(box.left - 6, toY(value) + 4, "end", text);
  }
  for (const [value, text] of spec.xTicks(first, last, Math.floor((box.right - box.left) / 64))) {
    line("axis", toX(value), toX(value), box.bottom, box.bottom + 4);
    const cut = toX(value) > box.right - 20; // a text in the middle would stand out of the picture
    write(cut ? box.right : toX(value), box.bottom + 17, cut ? "end" : "middle", text);
  }
  line("axis", box.left, box.right, toY(0), toY(0));
  write(box.right, box.bottom + 33, "end", spec.xLabel);
  write(0, 10, "start", spec.yLabel);
}

function drawLines(svg, spec, { first, toX, toY }) {
  const start = spec.from === undefined ? [] : [[toX(first), toY(0)]];
  const points = (values) => start.concat(values.map((value, k) => [toX(spec.x[k]), toY(value)]));
  if (spec.band) {
    const { lower, upper, step, style } = spec.band;
    const back = points(lower).reverse();
    const edge = back.map(([x, y], k) => (k && step ? `V${y}H${x}` : `L${x},${y}`)).join("");
    const d = path(points(upper), step) + edge + "Z";
    svg.append(drawn("path", { class: "band " + (style ?? ""), d }));
  }
  for (const { values, step, style } of spec.lines) {
    svg.append(drawn("path", { class: "line " + style, d: path(points(values), step) }));
  }
}

// spec: the title; x with xTicks, xText, xName and xLabel; lines (name, short name, values, style,
// step) and a band (name, lower, upper, style, step) with yText, tipText and yLabel; where x starts
// (from), unless the numbers say, and beyond what y never goes (most); what to say where there is
// nothing
function lineChart(figure, spec) {
  const chart = chartOf(figure, spec.title);
  const count = spec.x.length > 1 ? spec.x.length : 0;
  const width = begin(chart, count, 220, spec.nothing);
  if (!count) return;
  const { svg } = chart;
  const scale = scaleOf(spec, width);
  drawAxes(svg, spec, scale);
  drawLines(svg, spec, scale);
  chart.legend.replaceChildren(...spec.lines.map(legendOf));
  chart.legend.hidden = spec.lines.length === 1;
  chart.first = count - 1;
  chart.down = -1;  // the down arrow goes back in time, as a slider's does
  const { box, toX } = scale;
  chart.nearest = (event) => {
    const x = event.clientX - svg.getBoundingClientRect().left;
    const gaps = spec.x.map((value) => Math.abs(toX(value) - x));
    return gaps.indexOf(Math.min(...gaps));
  };
  const { band, lines, tipText } = spec;
  const bandAt = (k) => (band ? [tipText(band.lower[k]) + " to " + tipText(band.upper[k])] : []);
  const rowAt = (k) => [...lines.map((line) => tipText(line.values[k])), ...bandAt(k)];
  const names = [...lines.map((line) => line.short ?? line.name), ...(band ? [band.name] : [])];
  chart.describe = (k) => {
    const x = toX(spec.x[k]);
    const parts = rowAt(k).map((text, i) => names[i] + ": " + text);
    return {
      marker: drawn("line", { class: "cursor", x1: x, x2: x, y1: box.top, y2: box.bottom }),
      text: [spec.xText(spec.x[k]), ...parts].join("\n"),
      x,
      y: box.top,
    };
  };
  chart.columns = [spec.xName, ...names];
  chart.rows = () => spec.x.map((value, k) => [spec.xText(value), ...rowAt(k)]);
  finish(chart);
}

function legendOf(line) {
  const sample = drawn("svg", { viewBox: "0 0 22 8", "aria-hidden": "true" });
  sample.append(drawn("path", { class: "line " + line.style, d: "M0,4H22" }));
  return element("span", {}, [sample, line.name]);
}

// spec: the title; names, values and the text of each bar; its detail; columns and rows of the table
function barChart(figure, spec) {
  const chart = chartOf(figure, spec.title);
  const count = spec.values.some((value) => value > 0) ? spec.values.length : 0;
  const rowHeight = 23;
  const width = begin(chart, count, count * rowHeight + 6, spec.nothing);
  if (!count) return;
  const labels = Math.min(150, width * 0.38);
  const most = Math.max(...spec.values);
  const room = width - labels - 76;
  const { svg } = chart;
  spec.values.forEach((value, k) => {
    const y = k * rowHeight + 2;
    const name = drawn("text", { x: labels - 8, y: y + 14, "text-anchor": "end" }, spec.names[k]);
    svg.append(name);
    shorten(name, labels - 8);
    const length = Math.max((value / most) * room, value > 0 ? 1.5 : 0);
    const shape = { x: labels, y: y + 3, width: length, height: rowHeight - 9, rx: 2 };
    svg.append(drawn("rect", { class: "bar", ...shape }));
    svg.append(drawn("text", { class: "value", x: labels + length + 6, y: y + 14 }, spec.text(k)));
  });
  svg.append(drawn("line", { class: "axis", x1: labels, x2: labels, y1: 0, y2: count * rowHeight }));
  chart.legend.hidden = true;
  chart.first = 0;
  chart.down = 1;
  chart.nearest = (event) => {
    const y = event.clientY - svg.getBoundingClientRect().top;
    return Math.min(Math.max(Math.floor(y / rowHeight), 0), count - 1);
  };
  const frame = { class: "bar-cursor", x: 0.5, width: width - 1, height: rowHeight, rx: 3 };
  chart.describe = (k) => ({
    marker: drawn("rect", { ...frame, y: k * rowHeight + 0.5 }),
    text: spec.detail(k),
    x: labels,
    y: (k + 1) * rowHeight + 6,
  });
  chart.columns = spec.columns;
  chart.rows = () => spec.values.map((_, k) => spec.row(k));
  finish(chart);
}

function shorten(text, width) {
  const whole = text.textContent;
  for (let keep = whole.length - 1; keep > 0 && text.getComputedTextLength() > width; keep--) {
    text.textContent = whole.slice(0, keep) + "…";
  }
}
