"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const tip = document.getElementById("tip");
const SETS = ["train", "valid", "test"];
const color = name => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`);
const plain = x => Number(x.toPrecision(6)).toString();

/* ---- axes ---- */

/** Round numbers between low and high, about `count` of them. */
function linearTicks(low, high, count) {
  const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map(k => k * power).find(k => k >= rough);
  const ticks = [];
  for (let k = Math.ceil(low / step); k * step <= high; k++) ticks.push(+(k * step).toPrecision(12));
  return ticks;
}

function logTicks(low, high) {
  const digits = high / low > 50 ? [1] : high / low > 6 ? [1, 2, 5] : [1, 1.5, 2, 3, 4, 5, 7];
  const ticks = [];
  for (let k = Math.floor(Math.log10(low)); k <= Math.log10(high); k++)
    for (const digit of digits) ticks.push(+(digit * 10 ** k).toPrecision(3));
  return ticks.filter(tick => tick >= low && tick <= high);
}

/** A canvas with two axes; `paint(context, plot)` draws what lies between them. */
class Plot {
  constructor(parent, title, xLabel, yLabel, aspect, paint) {
    const figure = parent.appendChild(document.createElement("figure"));
    figure.appendChild(document.createElement("figcaption")).textContent = title;
    this.canvas = figure.appendChild(document.createElement("canvas"));
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", `${title}: ${yLabel} against ${xLabel}`);
    Object.assign(this, {xLabel, yLabel, aspect, paint, log: false});
    new ResizeObserver(() => this.draw()).observe(this.canvas.parentElement);
  }

  x(value) { return this.left + (value - this.xEnds[0]) * this.xScale; }
  y(value) { return this.bottom - ((this.log ? Math.log10(value) : value) - this.low) * this.yScale; }

  draw() {
    const width = this.canvas.clientWidth, height = Math.round(width * this.aspect);
    if (!width) return;
    const ratio = window.devicePixelRatio || 1, context = this.canvas.getContext("2d");
    this.canvas.style.height = `${height}px`;
    this.canvas.width = width * ratio;
    this.canvas.height = height * ratio;
    context.scale(ratio, ratio);
    const [low, high] = this.log ? this.yEnds.map(Math.log10) : this.yEnds;
    Object.assign(this, {left: 62, right: width - 10, top: 8, bottom: height - 40, low});
    this.xScale = (this.right - this.left) / (this.xEnds[1] - this.xEnds[0]);
    this.yScale = (this.bottom - this.top) / (high - low);
    this.drawAxes(context, width);
    context.save();
    context.beginPath();
    context.rect(this.left, this.top, this.right - this.left, this.bottom - this.top);
    context.clip();
    this.paint(context, this);
    context.restore();
  }

  drawAxes(context, width) {
    context.font = "12px system-ui, sans-serif";
    context.strokeStyle = color("line");
    context.strokeRect(this.left, this.top, this.right - this.left, this.bottom - this.top);
    context.fillStyle = color("text");
    context.textAlign = "center";
    for (const tick of linearTicks(...this.xEnds, 7)) {
      context.fillText(plain(tick), this.x(tick), this.bottom + 15);
      context.strokeRect(this.x(tick), this.bottom - 4, 0, 4);
    }
    context.fillText(this.xLabel, (this.left + this.right) / 2, this.bottom + 33);
    context.textAlign = "right";
    for (const tick of this.log ? logTicks(...this.yEnds) : linearTicks(...this.yEnds, 7)) {
      context.fillText(plain(tick), this.left - 5, this.y(tick) + 4);
      context.strokeRect(this.left, this.y(tick), 4, 0);
    }
    context.textAlign = "center";
    context.save();
    context.rotate(-Math.PI / 2);
    context.fillText(this.yLabel, -(this.top + this.bottom) / 2, 12);
    context.restore();
  }
}

const plots = [];
const redraw = () => plots.forEach(plot => plot.draw());

function showTip(event, text) {
  tip.textContent = text;
  tip.hidden = !text;
  const {width, height} = tip.getBoundingClientRect();
  const fits = event.clientX + width + 20 < window.innerWidth;
  tip.style.left = `${Math.max(0, fits ? event.clientX + 14 : event.clientX - width - 14)}px`;
  tip.style.top = `${Math.max(0, Math.min(event.clientY + 14, window.innerHeight - height - 4))}px`;
}

/* ---- curves ---- */

function addCurve(title, unit, series) {
  const {step, best} = data.history;
  const values = series.flatMap(line => line.values);
  const log = values.every(value => value > 0);
  const paint = (context, plot) => {
    context.strokeStyle = color("faint");
    context.setLineDash([4, 3]);
    context.strokeRect(plot.x(step[best]), plot.top, 0, plot.bottom - plot.top);
    context.setLineDash([]);
    context.lineWidth = 1.6;
    for (const {name, values} of series) {
      context.strokeStyle = color(SETS.includes(name) ? name : "text");
      context.beginPath();
      values.forEach((value, k) => context.lineTo(plot.x(step[k]), plot.y(value)));
      context.stroke();
    }
  };
  const plot = new Plot(document.getElementById("curves"), title, "Step", unit || title, .62, paint);
  const low = Math.min(...values), high = Math.max(...values), margin = .06 * (high - low) || 1;
  plot.log = log;
  plot.yEnds = log ? [low / 1.15, high * 1.15] : [low - margin, high + margin];
  plot.xEnds = [0, 1.02 * step[step.length - 1]];
  plot.canvas.addEventListener("pointermove", event => {
    const away = step.map(s => Math.abs(plot.x(s) - event.offsetX));
    const k = away.indexOf(Math.min(...away));
    const lines = series.map(({name, values}) => `${name} ${values[k].toPrecision(4)} ${unit}`);
    showTip(event, [`step ${step[k]}`, ...lines].join("\n"));
  });
  plot.canvas.addEventListener("pointerleave", event => showTip(event, ""));
  plots.push(plot);
}

function addCurves() {
  const {history} = data;
  if (!history) return void (document.getElementById("curves-section").hidden = true);
  document.getElementById("best").textContent =
    `The dashed line marks the best step, ${history.step[history.best]}. Errors are RMSE.`;
  addCurve("Loss", "", [{name: "loss", values: history.loss}]);
  for (const kind of data.kinds) {
    const series = SETS.filter(name => history.errors[name]?.[kind.name])
      .map(name => ({name, values: history.errors[name][kind.name]}));
    if (series.length) addCurve(`${kind.title} error`, `m${kind.unit}`, series);
  }
  if (history.learning_rate)
    addCurve("Learning rate", "", [{name: "rate", values: history.learning_rate}]);
}
