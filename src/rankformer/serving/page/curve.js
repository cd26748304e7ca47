// The learning curve, drawn.

const CURVE = { height: 250, left: 48, right: 16, top: 34, bottom: 38 };

/** Returns round numbers from about `low` to about `high`, `wanted` of them or a few more. */
function ticks(low, high, wanted) {
  const rough = (high - low) / wanted || Math.abs(high) / wanted || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
  const first = Math.floor(low / step);
  const last = Math.ceil(high / step);
  return Array.from({ length: last - first + 1 }, (_, index) => (first + index) * step);
}

/** Returns a picture of the validated metric over the epochs, with the best one marked. */
function curveFigure(points, metric) {
  const full = SINGLE.matches ? 350 : 620; // the letters keep their size, so a phone gets a smaller picture
  const best = points.reduce((top, point) => (point.value > top.value ? point : top));
  const epochs = points.map((point) => point.epoch);
  const values = points.map((point) => point.value);
  const across = ticks(0, Math.max(...epochs), SINGLE.matches ? 4 : 6);
  const upward = ticks(Math.min(...values), Math.max(...values), 4);
  const scale = (value, marks, from, to) => from + ((value - marks[0]) / (marks.at(-1) - marks[0] || 1)) * (to - from);
  const x = (epoch) => scale(epoch, across, CURVE.left, full - CURVE.right);
  const y = (value) => scale(value, upward, CURVE.height - CURVE.bottom, CURVE.top);
  const decimals = Math.max(0, -Math.floor(Math.log10(upward[1] - upward[0])));
  const text = (left, top, anchor, words) => make("svg:text", { x: left, y: top, "text-anchor": anchor }, words);
  const floor = CURVE.height - CURVE.bottom;
  const summary = `${metric} by epoch: ${decimal(values[0], 4)} at epoch ${epochs[0]}, `
    + `best ${decimal(best.value, 4)} at epoch ${best.epoch}`;
  const line = points.map((point) => `${x(point.epoch)},${y(point.value)}`).join("L");
  const [offset, anchor] = x(best.epoch) > full * 0.75 ? [-10, "end"] : [10, "start"]; // away from the nearer edge
  return make("svg:svg", { viewBox: `0 0 ${full} ${CURVE.height}`, class: "curve", role: "img", "aria-label": summary },
    upward.map((value) => [
      make("svg:line", { class: "grid", x1: CURVE.left, x2: full - CURVE.right, y1: y(value), y2: y(value) }),
      text(CURVE.left - 8, y(value) + 4, "end", decimal(value, decimals)),
    ]),
    across.map((epoch) => text(x(epoch), floor + 18, "middle", count(epoch))),
    text(full - CURVE.right, CURVE.height - 4, "end", "epoch"),
    text(0, 14, "start", metric),
    make("svg:path", { class: "line", d: `M${line}` }),
    points.map((point) => make("svg:circle", { class: "dot", cx: x(point.epoch), cy: y(point.value), r: 2.5 },
      make("svg:title", {}, `epoch ${point.epoch}: ${decimal(point.value, 4)}`))),
    make("svg:circle", { class: "best", cx: x(best.epoch), cy: y(best.value), r: 5.5 }),
    make("svg:text", { class: "best-label", x: x(best.epoch) + offset, y: y(best.value) + 20, "text-anchor": anchor },
      `best ${decimal(best.value, 4)}`));
}

/** Returns the values of the curve for those who read them rather than look. */
const curveTable = (points, metric) =>
  make("details", { class: "values" },
    make("summary", {}, "Values"),
    make("table", {},
      make("thead", {}, make("tr", {}, ["epoch", metric, "seconds"].map((name) => make("th", { scope: "col" }, name)))),
      make("tbody", {}, points.map((point) => make("tr", {},
        make("td", {}, count(point.epoch)),
        make("td", {}, numberElement(point.value, 4)),
        make("td", {}, Number.isFinite(point.seconds) ? numberElement(point.seconds, 1) : "–"))))));
