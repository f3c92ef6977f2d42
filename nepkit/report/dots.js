/* ---- dots ---- */

// Selected frames, "set index" -> largest error of the selected dots, with its unit.
const selected = new Map();

/** All dots of a kind as typed arrays; dot k is component `part[k]` of row `row[k]` of its set. */
function dotsOf(kind) {
  const sets = SETS.filter(name => data.sets[name]?.dots[kind.name]);
  const width = kind.components.length;
  const dots = [];
  for (const name of sets) {
    const {label, predicted} = data.sets[name].dots[kind.name];
    for (let k = 0; k < label.length; k++)
      if (label[k] !== null && predicted[k] !== null)
        dots.push({name, row: Math.floor(k / width), part: k % width, label: label[k],
          predicted: predicted[k]});
  }
  return dots;
}

const frameOf = (kind, dot) => data.sets[dot.name].dots[kind.name].frame?.[dot.row];
const keyOf = (kind, dot) => `${dot.name} ${frameOf(kind, dot)}`;

function describe(kind, dot) {
  const {frames, dots} = data.sets[dot.name], {atom, element} = dots[kind.name];
  const frame = frameOf(kind, dot), part = kind.components[dot.part], lines = [];
  lines.push(frame === undefined ? dot.name : `${dot.name}, frame ${frame}`);
  if (frames) lines.push(`source ${frames.source[frame] || "-"}`, frames.formula[frame]);
  if (atom) lines.push(`atom ${atom[dot.row]}, ${element[dot.row]}`);
  if (part) lines.push(`component ${part}`);
  lines.push(`reference ${dot.label} ${kind.unit}`, `prediction ${dot.predicted} ${kind.unit}`);
  lines.push(`error ${(1e3 * (dot.predicted - dot.label)).toFixed(3)} m${kind.unit}`);
  return lines.join("\n");
}

function paintDots(context, plot, kind, dots) {
  const [low, high] = plot.xEnds;
  context.strokeStyle = color("faint");
  context.beginPath();
  context.moveTo(plot.x(low), plot.y(low));
  context.lineTo(plot.x(high), plot.y(high));
  context.stroke();
  const size = dots.length > 5000 ? 2 : 4;
  const chosen = selected.size ? dots.filter(dot => selected.has(keyOf(kind, dot))) : [];
  const fill = (dots, size, alpha) => {
    context.globalAlpha = alpha;
    for (const name of SETS) {
      context.fillStyle = color(name);
      for (const dot of dots)
        if (dot.name === name)
          context.fillRect(plot.x(dot.label) - size / 2, plot.y(dot.predicted) - size / 2, size, size);
    }
    context.globalAlpha = 1;
  };
  fill(dots, size, selected.size ? .15 : size > 2 ? .7 : .5);
  fill(chosen, size + 1, .9);
  context.strokeStyle = color("mark");
  if (chosen.length <= 100)
    for (const dot of chosen) context.strokeRect(plot.x(dot.label) - 3.5, plot.y(dot.predicted) - 3.5, 7, 7);
  if (plot.drag) {
    const {x0, y0, x1, y1} = plot.drag;
    context.setLineDash([4, 3]);
    context.strokeRect(Math.min(x0, x1), Math.min(y0, y1), Math.abs(x1 - x0), Math.abs(y1 - y0));
    context.setLineDash([]);
  }
}

/** The dot nearest to a place on the canvas, at most 8 pixels away. */
function nearest(plot, dots, x, y) {
  let found = null, least = 64;
  for (const dot of dots) {
    const away = (plot.x(dot.label) - x) ** 2 + (plot.y(dot.predicted) - y) ** 2;
    if (away <= least) [found, least] = [dot, away];
  }
  return found;
}

/** Say what the dot under the mouse is, with a ring around it; null: nothing. */
function point(event, plot, kind, dot) {
  const ring = document.getElementById("ring"), {left, top} = plot.canvas.getBoundingClientRect();
  ring.hidden = !dot;
  if (dot) {
    ring.style.left = `${left + plot.x(dot.label)}px`;
    ring.style.top = `${top + plot.y(dot.predicted)}px`;
  }
  showTip(event, dot ? describe(kind, dot) : "");
}

function select(kind, dots) {
  for (const dot of dots) {
    if (frameOf(kind, dot) === undefined) continue;
    const error = Math.abs(dot.predicted - dot.label), key = keyOf(kind, dot);
    if (!(selected.get(key)?.error >= error)) selected.set(key, {error, unit: kind.unit});
  }
  showSelection();
}

function listen(plot, kind, dots) {
  const {canvas} = plot;
  canvas.addEventListener("pointerdown", event => {
    plot.drag = {x0: event.offsetX, y0: event.offsetY, x1: event.offsetX, y1: event.offsetY};
    try { canvas.setPointerCapture(event.pointerId); } catch { /* a pointer made by a program */ }
  });
  canvas.addEventListener("pointermove", event => {
    if (plot.drag) {
      Object.assign(plot.drag, {x1: event.offsetX, y1: event.offsetY});
      point(event, plot, kind, null);
      plot.draw();
    } else {
      point(event, plot, kind, nearest(plot, dots, event.offsetX, event.offsetY));
    }
  });
  canvas.addEventListener("pointerleave", event => point(event, plot, kind, null));
  canvas.addEventListener("pointercancel", () => { plot.drag = null; plot.draw(); });
  canvas.addEventListener("pointerup", event => {
    if (!plot.drag) return;
    const {x0, y0} = plot.drag, x1 = event.offsetX, y1 = event.offsetY;
    plot.drag = null;
    if (Math.hypot(x1 - x0, y1 - y0) < 4) {
      const dot = nearest(plot, dots, x1, y1);
      select(kind, dot ? [dot] : []);
    } else {
      const between = (value, a, b) => value >= Math.min(a, b) && value <= Math.max(a, b);
      select(kind, dots.filter(dot =>
        between(plot.x(dot.label), x0, x1) && between(plot.y(dot.predicted), y0, y1)));
    }
  });
}

function addParity(kind) {
  const dots = dotsOf(kind);
  if (!dots.length) return;
  const paint = (context, plot) => paintDots(context, plot, kind, dots);
  const plot = new Plot(document.getElementById("parity"), kind.title, `Reference (${kind.unit})`,
    `NEP (${kind.unit})`, 1, paint);
  let low = Infinity, high = -Infinity;
  for (const {label, predicted} of dots) {
    low = Math.min(low, label, predicted);
    high = Math.max(high, label, predicted);
  }
  const margin = .04 * (high - low) || .5;
  plot.xEnds = plot.yEnds = [low - margin, high + margin];
  listen(plot, kind, dots);
  plots.push(plot);
}

/* ---- the selection ---- */

/** Selected frames in the order of the files. */
function selection() {
  return [...selected].map(([key, worst]) => {
    const [name, index] = key.split(" ");
    return {name, index: +index, ...worst};
  }).sort((a, b) => a.name.localeCompare(b.name) || a.index - b.index);
}

function showSelection() {
  const most = 500, rows = selection(), body = document.getElementById("selected");
  const shown = rows.length > most ? ` (the first ${most} are listed)` : "";
  document.getElementById("selection").hidden = !rows.length;
  document.getElementById("count").textContent =
    `${rows.length} frame${rows.length === 1 ? "" : "s"} selected${shown}`;
  body.replaceChildren();
  for (const {name, index, error, unit} of rows.slice(0, most)) {
    const {frames} = data.sets[name], row = body.insertRow();
    const cells = [name, index, frames?.source[index] ?? "", frames?.formula[index] ?? "",
      `${(1e3 * error).toFixed(2)} m${unit}`];
    for (const cell of cells) row.insertCell().textContent = cell;
  }
  redraw();
}

function save() {
  const texts = data.embedded, rows = selection();
  const quoted = text => `"${(text ?? "").replaceAll('"', '""')}"`;
  const csv = ["set,frame,source", ...rows.map(({name, index}) =>
    `${name},${index},${quoted(data.sets[name].frames?.source[index])}`), ""].join("\n");
  const xyz = () => rows.map(({name, index}) => data.sets[name].frames.text[index]).join("");
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([texts ? xyz() : csv], {type: "text/plain"}));
  link.download = texts ? "selected.xyz" : "selected.csv";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

document.getElementById("save").textContent =
  data.embedded ? "Save as extended XYZ" : "Save the list as CSV";
document.getElementById("save").addEventListener("click", save);
document.getElementById("clear").addEventListener("click", () => { selected.clear(); showSelection(); });
addCurves();
data.kinds.forEach(addParity);
document.getElementById("parity-section").hidden = !Object.keys(data.sets).length;
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
// On paper the scheme is the light one.
window.addEventListener("beforeprint", () => { document.documentElement.classList.add("printing"); redraw(); });
window.addEventListener("afterprint", () => { document.documentElement.classList.remove("printing"); redraw(); });
redraw();
