// The memory explorer: what fills each GPU. It counts and speaks as distlab.explorers.memory does, which
// a test holds on random settings. Shapes, sizes, colours and controls come from there as data, so that
// the page knows no number of its own.

import { Impossible, define } from "./frame.mjs";
import { bar, commas, dashed, fixed, line, picture, text, ticks, trimmed } from "./svg.mjs";

const UNITS = { GB: 1e9, TB: 1e12 };

// -- numbers --------------------------------------------------------------------------------------

export function numbersOf(data, settings) {
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

function size(bytes, unit) {
  const number = bytes / UNITS[unit];
  if (number >= 0.1 || number === 0) {
    const places = number ? 2 - Math.floor(Math.log10(number)) : 0;
    return `${trimmed(commas(fixed(number, Math.max(places, 0))))} ${unit}`;
  }
  return number >= 0.0005 ? `${fixed(number, 3)} ${unit}` : `≈ 0 ${unit}`;
}

function sentenceOf(settings, numbers) {
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

// The stacks of all stages (of the first and the last where there are many).
function svgOf(data, settings, numbers, alt) {
  const { muted, grid, letter } = data.look;
  const { unit, capacity } = numbers;
  const parts = [];
  const short = (bytes) => size(bytes, unit).replace(` ${unit}`, "");

  let shown = numbers.stages.map((_, i) => i);
  if (shown.length > MOST_STAGES)
    shown = [...shown.slice(0, MOST_STAGES - 2), null, shown.length - 1];
  const top = (1.12 * Math.max(numbers.stages[numbers.fullest].total, capacity)) / UNITS[unit];
  const scale = (FOOT - TOP) / top;
  const title = `${settings.model} on ${commas(settings.gpus)} × ${settings.gpu}`;
  parts.push(text(LEFT, 20, title, { size: 14, bold: true }));
  parts.push(text(LEFT, 40, `${unit} in one GPU`, { colour: muted }));
  for (const mark of ticks(top)) {
    const y = FOOT - mark * scale;
    const told = commas(Number(mark.toPrecision(10)));
    parts.push(line(LEFT, y, RIGHT, y, grid));
    parts.push(text(LEFT - 6, y + 4, told, { anchor: "end", colour: muted }));
  }
  const slot = (RIGHT - LEFT) / shown.length;
  shown.forEach((number, i) => {
    const middle = LEFT + (i + 0.5) * slot;
    if (number === null)
      return parts.push(text(middle, FOOT - 4, "…", { anchor: "middle", size: 16 }));
    const { sizes, total, layers, in_flight } = numbers.stages[number];
    const wide = Math.min(0.66 * slot, 110);
    let foot = FOOT;
    sizes.forEach((bytes, part) => {
      const high = (bytes / UNITS[unit]) * scale;
      const words = short(bytes);
      const { colour } = data.parts[part];
      parts.push(bar(middle - wide / 2, middle + wide / 2, foot - high, high, colour));
      if (high >= 17 && wide >= letter * 12 * words.length + 4)
        parts.push(text(middle, foot - high / 2 + 4.5, words, { anchor: "middle" }));
      foot -= high;
    });
    parts.push(text(middle, foot - 5, short(total), { anchor: "middle", bold: true }));
    [number, layers, in_flight].forEach((count, row) =>
      parts.push(text(middle, FOOT + 15 * (row + 1), `${count}`, { anchor: "middle" })),
    );
  });
  ["stage", "layers", "in flight"].forEach((name, row) =>
    parts.push(
      text(LEFT - 4, FOOT + 15 * (row + 1), name, { anchor: "end", size: 11, colour: muted }),
    ),
  );
  const limit = FOOT - (capacity / UNITS[unit]) * scale;
  parts.push(dashed(LEFT, limit, RIGHT, limit, muted));
  parts.push(text(RIGHT + 4, limit + 4, size(capacity, unit), { colour: muted }));
  parts.push(...panel(data, settings, numbers));
  return picture(WIDTH, HEIGHT, alt, data.look, parts);
}

// The fullest GPU's parts as a table, which also is the key of the colours.
function panel(data, settings, { stages, fullest, unit, capacity, free }) {
  const stage = stages[fullest];
  const end = WIDTH - 4;
  const whose = settings.pp === 1 ? "every GPU" : `a GPU of stage ${fullest}`;
  const parts = [text(PANEL, 64, whose, { bold: true })];
  let y = 64;
  const row = (name, bytes, bold = false) => {
    parts.push(text(PANEL + 16, y, name, { bold }));
    parts.push(text(end, y, size(bytes, unit), { anchor: "end", bold }));
  };
  for (let part = data.parts.length - 1; part >= 0; part--) {
    y += 22;
    parts.push(bar(PANEL, PANEL + 10, y - 10, 10, data.parts[part].colour));
    row(data.parts[part].name, stage.sizes[part]);
  }
  parts.push(line(PANEL, y + 8, end, y + 8, data.look.muted));
  y += 24;
  row("in all", stage.total);
  y += 22;
  row("capacity", capacity);
  y += 22;
  row(free >= 0 ? "free" : "missing", Math.abs(free), true);
  return parts;
}

// -- the element ----------------------------------------------------------------------------------

// The picture and its sentence. Throws Impossible, with one sentence, for settings that can't be.
export function view(data, settings) {
  const numbers = numbersOf(data, settings);
  const sentence = sentenceOf(settings, numbers);
  return { svg: svgOf(data, settings, numbers, sentence), sentence };
}

define("memory-explorer", view);
