// The memory explorer on a page without Python: what fills each GPU, as distlab.explorers.memory
// counts and draws it. A test holds numbers, sentence and picture equal to those, letter by letter.
// Shapes, sizes, colours and controls come from distlab as data (distlab.explorers.web), so the
// page knows no number of its own.

const UNITS = { GB: 1e9, TB: 1e12 };

export class Impossible extends Error {}

// -- numbers --------------------------------------------------------------------------------------

export function memoryNumbers(data, settings) {
  const cfg = possible(data, settings);
  const { tp, pp, zero } = settings;
  const dp = settings.gpus / (tp * pp);
  const [kept, again] = layerBytes(cfg, settings);
  const stages = [];
  for (let stage = 0; stage < pp; stage++) {
    // Where layers don't divide, the last stages have one more: they keep fewest activations.
    const few = pp - (cfg.layers % pp);
    const layers = Math.floor(cfg.layers / pp) + (stage >= few ? 1 : 0);
    const inFlight = pp - stage;
    const params = (cfg.total * layers) / cfg.layers / tp;
    const sharded = [zero >= 3, zero >= 2, zero >= 1];
    const state = data.bytes_each.map((k, i) => (params * k) / (sharded[i] ? dp : 1));
    const sizes = [...state, inFlight * layers * kept + again];
    const total = sizes.reduce((sum, size) => sum + size, 0);
    stages.push({ layers, in_flight: inFlight, sizes, total });
  }
  const totals = stages.map((stage) => stage.total);
  const fullest = totals.indexOf(totals.reduce((most, total) => Math.max(most, total)));
  const capacity = data.gpus[settings.gpu];
  const unit = totals[fullest] < 20e12 ? "GB" : "TB";
  return { dp, capacity, stages, fullest, unit, free: capacity - totals[fullest] };
}

function possible(data, settings) {
  const { tp, pp, gpus, seq_len } = settings;
  const cfg = data.models[settings.model];
  const name = settings.model;
  if (cfg.layers < pp)
    throw new Impossible(
      `${name} has ${cfg.layers} layers: not enough for ${pp} stages. Choose a smaller PP.`,
    );
  for (const [heads, what] of [[cfg.heads, "heads"], [cfg.kv_heads, "K/V heads"]])
    if (heads % tp)
      throw new Impossible(
        `${name} has ${heads} ${what}, which TP ${tp} does not divide. Choose another TP.`,
      );
  if (gpus % (tp * pp))
    throw new Impossible(
      `One replica takes TP ${tp} × PP ${pp} = ${tp * pp} GPUs, and ${commas(gpus)} is no ` +
        `multiple of ${tp * pp}. Choose other numbers.`,
    );
  if (settings.sequence_parallel && seq_len % tp)
    throw new Impossible(
      `Sequence parallelism cuts ${commas(seq_len)} tokens into ${tp} equal parts, which ` +
        "does not come out even. Choose another length.",
    );
  return cfg;
}

// What an average layer keeps of a microbatch, and what comes on top for one layer.
function layerBytes(cfg, settings) {
  const { tp, seq_len } = settings;
  const dropout = cfg.norm === "layer";
  const h = cfg.hidden;
  let query = cfg.heads * cfg.head_dim;
  let value = query;
  let keys = cfg.kv_heads * cfg.head_dim;
  let values = keys;
  let latents = 0;
  if (cfg.latent) {
    query = keys = cfg.heads * (cfg.latent.nope_dim + cfg.latent.rope_dim);
    value = values = cfg.heads * cfg.latent.value_dim;
    latents = 2 * 2 * (cfg.latent.query_rank + cfg.latent.kv_rank);
  }
  const experts = cfg.moe_layers / cfg.layers;
  const used = cfg.active_experts;
  const hidden = (1 - experts) * cfg.ffn + experts * (used + cfg.shared_experts) * cfg.expert_ffn;
  const whole = 2 * 2 * h + 2 * h + 2 * h + (dropout ? 2 * h : 0) + experts * used * 2 * 2 * h;
  const cut = 2 * (query + keys + values + value) + (cfg.gated ? 8 : 4) * hidden;
  const scores = cfg.heads * (settings.flash ? 4 : (dropout ? 5 : 2) * seq_len);
  const tokens = seq_len * settings.microbatch;
  const wholeCut = settings.sequence_parallel ? tp : 1;
  const every = tokens * ((whole + latents) / wholeCut + (cut + scores) / tp);
  const kept = {
    none: every,
    selective: every - (tokens * scores) / tp,
    full: (tokens * 2 * h) / wholeCut,
  }[settings.recompute];
  return [kept, every - kept];
}

// -- words ----------------------------------------------------------------------------------------

// As Python rounds: a tie goes to the even digit, where toFixed goes away from zero.
function fixed(x, places) {
  const text = x.toFixed(places);
  const tie = /^50*$/.test(x.toFixed(60).split(".")[1].slice(places));
  return tie && Number(text.at(-1)) % 2 ? (x - Math.sign(x) * 1e-9).toFixed(places) : text;
}

const commas = (x) => `${x}`.replace(/\B(?<!\.\d*)(?=(\d{3})+(?!\d))/g, ",");
const trimmed = (text) => (text.includes(".") ? text.replace(/\.?0+$/, "") : text);

function size(bytes, unit) {
  const number = bytes / UNITS[unit];
  if (number >= 0.1 || number === 0) {
    const places = number ? 2 - Math.floor(Math.log10(number)) : 0;
    return `${trimmed(commas(fixed(number, Math.max(places, 0))))} ${unit}`;
  }
  return number >= 0.0005 ? `${fixed(number, 3)} ${unit}` : `≈ 0 ${unit}`;
}

export function memorySentence(settings, numbers) {
  const { stages, fullest, unit, capacity, free } = numbers;
  const who = settings.pp === 1 ? "Every GPU" : `A GPU of stage ${fullest}, the fullest,`;
  const gpus = settings.gpus === 1 ? "1 GPU" : `${commas(settings.gpus)} GPUs`;
  const rest = `${size(Math.abs(free), unit)} ${free >= 0 ? "stay free" : "are missing"}`;
  return (
    `${settings.model} on ${gpus}, TP ${settings.tp} × PP ${settings.pp} × DP ` +
    `${commas(numbers.dp)}. ${who} needs ${size(stages[fullest].total, unit)} of ` +
    `${size(capacity, unit)}: ${rest}.`
  );
}

// -- the picture ----------------------------------------------------------------------------------

const LEFT = 58, RIGHT = 444, TOP = 52, FOOT = 282, PANEL = 496, WIDTH = 680, HEIGHT = 332;
const MOST_STAGES = 8;
const ESCAPES = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;" };
const escape = (words) => words.replace(/[&<>"']/g, (letter) => ESCAPES[letter]);
const num = (x) => trimmed(fixed(x, 2)).replace(/^-0$/, "0");

export function memorySvg(data, settings, numbers, alt) {
  const { ink, muted, grid, font, letter } = data.look;
  const { unit, capacity, free } = numbers;
  const parts = [];
  const text = (x, y, words, { anchor = "start", size = 12, colour = ink, bold = false } = {}) =>
    parts.push(
      `<text x="${num(x)}" y="${num(y)}" font-size="${num(size)}" fill="${colour}"` +
        `${bold ? ' font-weight="bold"' : ""} text-anchor="${anchor}" paint-order="stroke" ` +
        `stroke="white" stroke-width="3" stroke-opacity="0.8">${escape(words)}</text>`,
    );
  const line = (x0, y0, x1, y1, colour, more = "") =>
    parts.push(
      `<path d="M${num(x0)} ${num(y0)}L${num(x1)} ${num(y1)}" fill="none" ` +
        `stroke="${colour}" ${more}/>`,
    );
  const bar = (left, right, y, high, colour) =>
    parts.push(
      `<path d="M${num(left)} ${num(y)}H${num(right)}v${num(high)}H${num(left)}Z" ` +
        `fill="${colour}" fill-opacity="0.3" stroke="${colour}" stroke-width="1.2"/>`,
    );
  const short = (bytes) => size(bytes, unit).replace(` ${unit}`, "");

  let shown = numbers.stages.map((_, i) => i);
  if (shown.length > MOST_STAGES)
    shown = [...shown.slice(0, MOST_STAGES - 2), null, shown.length - 1];
  const stage = numbers.stages[numbers.fullest];
  const top = (1.12 * Math.max(stage.total, capacity)) / UNITS[unit];
  const scale = (FOOT - TOP) / top;
  text(LEFT, 20, `${settings.model} on ${commas(settings.gpus)} × ${settings.gpu}`, {
    size: 14,
    bold: true,
  });
  text(LEFT, 40, `${unit} in one GPU`, { colour: muted });
  for (const mark of ticks(top)) {
    const y = FOOT - mark * scale;
    line(LEFT, y, RIGHT, y, grid);
    text(LEFT - 6, y + 4, commas(Number(mark.toPrecision(10))), { anchor: "end", colour: muted });
  }
  const slot = (RIGHT - LEFT) / shown.length;
  shown.forEach((number, i) => {
    const middle = LEFT + (i + 0.5) * slot;
    if (number === null) return text(middle, FOOT - 4, "…", { anchor: "middle", size: 16 });
    const { sizes, total, layers, in_flight } = numbers.stages[number];
    const wide = Math.min(0.66 * slot, 110);
    let foot = FOOT;
    sizes.forEach((bytes, part) => {
      const high = (bytes / UNITS[unit]) * scale;
      const words = short(bytes);
      bar(middle - wide / 2, middle + wide / 2, foot - high, high, data.parts[part].colour);
      if (high >= 17 && wide >= letter * 12 * [...words].length + 4)
        text(middle, foot - high / 2 + 4.5, words, { anchor: "middle" });
      foot -= high;
    });
    text(middle, foot - 5, short(total), { anchor: "middle", bold: true });
    [number, layers, in_flight].forEach((count, row) =>
      text(middle, FOOT + 15 * (row + 1), `${count}`, { anchor: "middle" }),
    );
  });
  ["stage", "layers", "in flight"].forEach((name, row) =>
    text(LEFT - 4, FOOT + 15 * (row + 1), name, { anchor: "end", size: 11, colour: muted }),
  );
  const limit = FOOT - (capacity / UNITS[unit]) * scale;
  line(LEFT, limit, RIGHT, limit, muted, 'stroke-width="1.5" stroke-dasharray="6 4"');
  text(RIGHT + 4, limit + 4, size(capacity, unit), { colour: muted });

  // The fullest GPU's parts as a table, which also is the key of the colours.
  const end = WIDTH - 4;
  let y = 64;
  text(PANEL, y, settings.pp === 1 ? "every GPU" : `a GPU of stage ${numbers.fullest}`, {
    bold: true,
  });
  for (let part = data.parts.length - 1; part >= 0; part--) {
    y += 22;
    bar(PANEL, PANEL + 10, y - 10, 10, data.parts[part].colour);
    text(PANEL + 16, y, data.parts[part].name);
    text(end, y, size(stage.sizes[part], unit), { anchor: "end" });
  }
  line(PANEL, y + 8, end, y + 8, muted);
  const rows = [
    ["in all", stage.total],
    ["capacity", capacity],
    [free >= 0 ? "free" : "missing", Math.abs(free)],
  ];
  rows.forEach(([name, bytes], row) => {
    y += row === 0 ? 24 : 22;
    const bold = row === 2;
    text(PANEL + 16, y, name, { bold });
    text(end, y, size(bytes, unit), { anchor: "end", bold });
  });
  return (
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img" ` +
    `aria-label="${escape(alt)}" font-family="${font}" font-size="12" fill="${ink}" ` +
    `style="display: block; width: 100%; max-width: ${WIDTH}px; height: auto">` +
    `<rect width="${WIDTH}" height="${HEIGHT}" fill="white"/>${parts.join("")}</svg>`
  );
}

function ticks(end, most = 6) {
  if (end <= 0) return [0];
  const power = 10 ** Math.floor(Math.log10(end / most));
  const step = [1, 2, 5, 10]
    .map((k) => k * power)
    .find((step) => step * most >= end * (1 - 1e-9));
  const count = Math.floor((end / step) * (1 + 1e-9)) + 1;
  return Array.from({ length: count }, (_, i) => i * step);
}

// -- the page -------------------------------------------------------------------------------------

// Returns { svg, sentence }, or { impossible } with the reason why there is no picture.
export function memoryView(data, settings) {
  try {
    const numbers = memoryNumbers(data, settings);
    const sentence = memorySentence(settings, numbers);
    return { svg: memorySvg(data, settings, numbers, sentence), sentence };
  } catch (reason) {
    if (reason instanceof Impossible) return { impossible: reason.message };
    throw reason;
  }
}

export function mount(place, data) {
  const settings = { ...data.start };
  const picture = document.createElement("figure");
  const redraw = () => {
    const view = memoryView(data, settings);
    picture.innerHTML = view.svg ?? "";
    const words = document.createElement(view.svg ? "figcaption" : "div");
    words.setAttribute("role", "status");
    words.textContent = view.sentence ?? view.impossible;
    picture.append(words);
  };
  const controls = document.createElement("form");
  controls.append(...data.controls.map((control) => handle(control, settings, redraw)));
  place.replaceChildren(controls, picture);
  redraw();
}

// A labelled control; what it offers stands in `values`, what a reader sees of it in `texts`.
function handle({ name, label, kind, values, texts }, settings, redraw) {
  const at = values.indexOf(settings[name]);
  const id = `memory-${name}`;
  const row = document.createElement("div");
  const input = document.createElement(kind === "menu" ? "select" : "input");
  const shown = Object.assign(document.createElement("output"), { htmlFor: id });
  const choose = (i) => {
    settings[name] = values[i];
    shown.textContent = texts[i];
    if (kind === "slider") input.setAttribute("aria-valuetext", texts[i]);
  };
  const words = { textContent: label, htmlFor: id };
  row.append(Object.assign(document.createElement("label"), words), Object.assign(input, { id }));
  if (kind === "slider") {
    Object.assign(input, { type: "range", min: 0, max: values.length - 1, step: 1, value: at });
    row.append(shown);
  } else if (kind === "tick") {
    Object.assign(input, { type: "checkbox", checked: at === 1 });
  } else {
    input.append(...texts.map((text, i) => new Option(text, i, i === at, i === at)));
  }
  choose(at);
  input.addEventListener("input", () => {
    choose(kind === "tick" ? Number(input.checked) : Number(input.value));
    redraw();
  });
  return row;
}

if (globalThis.document)
  for (const place of document.querySelectorAll("[data-explorer=memory]"))
    mount(place, JSON.parse(place.querySelector("script").textContent));
