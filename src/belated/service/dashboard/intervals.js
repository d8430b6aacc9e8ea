
// Estimates with their intervals, one row each: the name and what is counted of it above the bar.
const ROW = 44;

// Where the numbers come to lie; an end that is null reaches to the edge.
function intervalScale(rows, width) {
  const ends = rows.flatMap(({ mean, low, high }) => [mean, low ?? mean, high ?? mean]);
  const [least, most] = [Math.min(...ends), Math.max(...ends)];
  const room = (most - least || 1) * 0.02;
  const [low, high] = [least - room, most + room];
  const box = { left: 4, right: width - 62, bottom: rows.length * ROW + 2 };
  const toX = (value) => box.left + ((value - low) / (high - low)) * (box.right - box.left);
  return { box, low, high, toX };
}

function drawInterval(svg, spec, k, { box, toX }, width) {
  const { name, mean, low, high } = spec.rows[k];
  const y = k * ROW;
  const count = drawn("text", { x: width - 2, y: y + 15, "text-anchor": "end" }, spec.count(k));
  const label = drawn("text", { class: "value", x: 2, y: y + 15 }, name);
  svg.append(count, label);
  shorten(label, width - 14 - count.getComputedTextLength());
  const [from, to] = [low === null ? box.left : toX(low), high === null ? box.right : toX(high)];
  const bar = { x: from, y: y + 23, width: Math.max(to - from, 1.5), height: 12, rx: 2 };
  svg.append(drawn("rect", { class: k ? "interval" : "interval first", ...bar }));
  svg.append(drawn("line", { class: "mean", x1: toX(mean), x2: toX(mean), y1: y + 21, y2: y + 37 }));
  svg.append(drawn("text", { class: "value", x: width - 2, y: y + 33, "text-anchor": "end" }, number(mean)));
}

// spec: the title; rows (name, mean, low, high); count and detail of each; the axis' label; columns
// and rows of the table; what to say where there is nothing
function intervalChart(figure, spec) {
  const chart = chartOf(figure, spec.title);
  const { svg } = chart;
  const rows = spec.rows;
  const width = begin(chart, rows.length, rows.length * ROW + 40, spec.nothing);
  if (!rows.length) return;
  const scale = intervalScale(rows, width);
  const { box, low, high, toX } = scale;
  for (const [value, text] of numberTicks(low, high, Math.max(2, Math.floor((box.right - box.left) / 80)))) {
    svg.append(drawn("line", { class: "grid-line", x1: toX(value), x2: toX(value), y1: 0, y2: box.bottom }));
    const anchor = toX(value) < 20 ? "start" : "middle";
    svg.append(drawn("text", { x: toX(value), y: box.bottom + 16, "text-anchor": anchor }, text));
  }
  svg.append(drawn("text", { x: box.right, y: box.bottom + 32, "text-anchor": "end" }, spec.xLabel));
  rows.forEach((_, k) => drawInterval(svg, spec, k, scale, width));
  chart.legend.hidden = true;
  chart.first = 0;
  chart.down = 1;
  chart.nearest = (event) => {
    const y = event.clientY - svg.getBoundingClientRect().top;
    return Math.min(Math.max(Math.floor(y / ROW), 0), rows.length - 1);
  };
  const frame = { class: "bar-cursor", x: 0.5, width: width - 1, height: ROW - 1, rx: 3 };
  chart.describe = (k) => ({
    marker: drawn("rect", { ...frame, y: k * ROW + 0.5 }),
    text: spec.detail(k), x: box.left, y: (k + 1) * ROW + 4,
  });
  chart.columns = spec.columns;
  chart.rows = () => rows.map((_, k) => spec.row(k));
  finish(chart);
}
