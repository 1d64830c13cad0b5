// The schedule explorer: who runs what when in a pipeline, what stands idle, what is held. It counts
// and speaks as distlab.explorers.schedule and distlab.schedule do, which a test holds on random
// settings, box by box. Names, colours and controls come from there as data.

import { Impossible, define } from "./frame.mjs";
import { ORDERS, range } from "./orders.mjs";
import {
  bar, boxes, commas, counted, dashed, fixed, general, line, numbers, picture, strips, text, ticks,
} from "./svg.mjs";

// -- numbers --------------------------------------------------------------------------------------

export function numbersOf(data, settings) {
  possible(settings);
  const { stages: p, microbatches: m } = settings;
  const { of, splits, endless } = ORDERS[settings.schedule];
  const v = chunksUsed(settings);
  const orders = of(p, m, v);
  const apart = splits ? settings.weight_grad : 0;
  const takes = {
    F: settings.forward, R: settings.forward, B: settings.backward - apart, W: apart,
  };
  // In v-ths of the unit of time, so that the sums stay exact.
  const lines = simulate(orders, v, takes, settings.delay * v);
  const makespan = Math.max(...lines.map(({ ends }) => ends.at(-1)));
  const work = orders[0].reduce((sum, [kind]) => sum + takes[kind], 0);
  const idle = p * makespan - p * work;
  const spans = lines.map(({ starts, ends }) => ends.at(-1) - starts[0]);
  return {
    ranks: lines.map(({ starts, ends }, rank) => ({
      ops: orders[rank],
      starts: starts.map((time) => time / v),
      ends: ends.map((time) => time / v),
    })),
    makespan: makespan / v,
    work: work / v,
    longest_span: Math.max(...spans) / v,
    bubble_fraction: idle / (p * makespan),
    bubble_ratio: idle / (p * work),
    peaks: orders.map((order) => mostHeld(order, splits ? "W" : "B") / v),
    versions: orders.map((order) => (endless ? mostVersions(order) : 1)),
    sends: p > 1 ? 2 * (p * v - 1) : 0,
  };
}

function chunksUsed(settings) {
  return ORDERS[settings.schedule].chunked ? settings.chunks : 1;
}

function possible(settings) {
  const { stages: p, microbatches: m, backward, weight_grad } = settings;
  if (ORDERS[settings.schedule].splits && weight_grad > backward)
    throw new Impossible(
      `The weights' gradient, ${general(weight_grad, 6)}, is a part of backward, which takes ` +
        `only ${general(backward, 6)} in all. Choose a shorter one, or a longer backward.`,
    );
  if (settings.schedule === "interleaved 1F1B" && settings.chunks > 1 && m % p) {
    const near = [m - (m % p), m - (m % p) + p].filter((n) => n > 0);
    throw new Impossible(
      `Interleaving takes microbatches through the chunks in groups of p, and p = ${p} does ` +
        `not divide m = ${m}. Choose ${near.join(" or ")} microbatches, or looped BFS.`,
    );
  }
}

// When each op starts and ends. Each rank runs its ops in its order, each as soon as what it needs is
// there: F from the virtual stage before, B from the one after, `delay` after it has ended there.
function simulate(orders, v, takes, delay) {
  const p = orders.length;
  const last = p * v - 1;
  const ended = { F: new Map(), B: new Map() }; // by microbatch and virtual stage
  const lines = orders.map(() => ({ starts: [], ends: [] }));
  for (let going = true; going; ) {
    going = false;
    orders.forEach((order, rank) => {
      const { starts, ends } = lines[rank];
      while (starts.length < order.length) {
        const [kind, i, chunk] = order[starts.length];
        const stage = chunk * p + rank;
        let start = ends.at(-1) ?? 0;
        if ((kind === "F" && stage > 0) || (kind === "B" && stage < last)) {
          const from = ended[kind].get(i * (last + 1) + (kind === "F" ? stage - 1 : stage + 1));
          if (from === undefined) return;
          start = Math.max(start, from + (p > 1 ? delay : 0));
        }
        starts.push(start);
        ends.push(start + takes[kind]);
        ended[kind]?.set(i * (last + 1) + stage, start + takes[kind]);
        going = true;
      }
    });
  }
  return lines;
}

// Microbatches of one chunk that a rank holds at most, from F to the end of their last op.
function mostHeld(order, release) {
  let held = 0;
  let most = 0;
  for (const [kind] of order) {
    held += (kind === "F") - (kind === release);
    most = Math.max(most, held);
  }
  return most;
}

// Without a flush a rank updates its weights after every B, and keeps each F's version for its B:
// the most versions to store at once, the newest included.
function mostVersions(order) {
  const newest = [];
  const used = [];
  const ofForward = [];
  let updates = 0;
  for (const [kind, i] of order) {
    newest.push(updates);
    if (kind === "F") ofForward[i] = updates;
    else updates++;
    used.push(ofForward[i]);
  }
  const lastUse = new Map(used.map((version, place) => [version, place]));
  const kept = new Set();
  let most = 1;
  newest.forEach((now, place) => {
    kept.add(now).add(used[place]);
    for (const version of kept)
      if (version !== now && !(lastUse.get(version) >= place)) kept.delete(version);
    most = Math.max(most, kept.size);
  });
  return most;
}

// -- words ----------------------------------------------------------------------------------------

function sentenceOf(settings, done) {
  const { stages: p, microbatches: m } = settings;
  const { recomputes, endless, splits } = ORDERS[settings.schedule];
  const said = [
    `${counted(m, "microbatch", "es")} on ${counted(p, "stage")} take${m === 1 ? "s" : ""} ` +
      `${short(done.makespan)}, of which ${percent(done.bubble_fraction)} is bubble, ` +
      `${percent(done.bubble_ratio)} of the work${recomputes ? ", forward again included" : ""}.`,
  ];
  if (endless)
    said.push(
      "Without a flush that comes once, not every step; " +
        `rank 0 keeps ${counted(done.versions[0], "version")} of its weights.`,
    );
  if (splits)
    said.push(`From its first op to its last, no rank takes more than ${short(done.longest_span)}.`);
  if (chunksUsed(settings) > 1)
    said.push(
      `A microbatch is sent ${done.sends} times, not ${2 * (p - 1)} as without chunks.`,
    );
  let peaks = done.peaks.map(short);
  if (p > 1 && new Set(peaks).size === 1) peaks = [`all ${peaks[0]}`];
  else if (p > 8) peaks = [...peaks.slice(0, 2), "…", ...peaks.slice(-2)];
  const inputs = recomputes && m > 1 ? ", all but one as inputs alone" : "";
  said.push(`In flight at most, by rank: ${peaks.join(", ")}${inputs}.`);
  return said.join(" ");
}

function percent(share) {
  const number = 100 * share;
  return `${number >= 1000 ? commas(fixed(number, 0)) : general(number, 3)}\u00a0%`;
}

function short(time) {
  return commas(time >= 1e4 ? fixed(time, 0) : general(time, 5));
}

// -- the picture ----------------------------------------------------------------------------------

const LEFT = 58, RIGHT = 540, PANEL = 562, WIDTH = 680, TOP = 72;
const NARROW = 2.5; // where a bar is narrower, none has an outline

// The schedule over time, a row per rank, and beside it what each rank holds.
function svgOf(data, settings, done, alt) {
  const { muted, grid } = data.look;
  const p = settings.stages;
  const lane = Math.max(18, Math.min(40, Math.floor(240 / p)));
  const foot = TOP + p * lane;
  const scale = (RIGHT - LEFT) / done.makespan;
  const x = (time) => LEFT + time * scale;
  const chunks = chunksUsed(settings);
  const name = settings.schedule + (chunks > 1 ? `, ${counted(chunks, "chunk")} a rank` : "");
  const title = `${name}: ${short(done.makespan)}, ${percent(done.bubble_fraction)} bubble`;
  const parts = [text(LEFT, 20, title, { size: 14, bold: true }), ...key(data, settings)];
  for (const mark of ticks(done.makespan, 8)) {
    const told = commas(general(mark, 6));
    parts.push(line(x(mark), TOP, x(mark), foot + 4, grid));
    parts.push(text(x(mark), foot + 18, told, { anchor: "middle", colour: muted }));
  }
  parts.push(text(RIGHT, foot + 34, "time", { anchor: "end", colour: muted }));
  const end = x(done.work);
  parts.push(dashed(end, TOP - 4, end, foot + 4, muted));
  parts.push(...lanes(data, done, lane, x, chunks));
  for (const rank of range(p)) {
    const middle = TOP + (rank + 0.5) * lane + 4;
    parts.push(text(LEFT - 8, middle, `rank ${rank}`, { anchor: "end", colour: muted }));
  }
  const anchor = end < (LEFT + RIGHT) / 2 ? "start" : "end";
  parts.push(text(end, TOP - 9, `work of a rank: ${short(done.work)}`, { anchor, size: 11 }));
  parts.push(...held(data, settings, done, lane));
  return picture(WIDTH, foot + 42, alt, data.look, parts);
}

function key(data, settings) {
  const { recomputes, splits } = ORDERS[settings.schedule];
  const names = [["F", "forward"], ["B", splits ? "input gradient" : "backward"]];
  if (recomputes) names.push(["R", "forward again"]);
  if (splits) names.push(["W", "weight gradient"]);
  const parts = [];
  let x = LEFT;
  for (const [kind, name] of names) {
    parts.push(bar(x, x + 10, 32, 10, data.colours[kind], tint(kind, 0, 1)));
    parts.push(text(x + 15, 42, name));
    x += 15 + data.look.letter * 12 * name.length + 14;
  }
  const chunks = chunksUsed(settings);
  const told = `chunks 0 to ${chunks - 1}: light to strong`;
  if (chunks > 1) parts.push(text(x, 42, told, { colour: data.look.muted }));
  return parts;
}

// How strong a bar's tint is: stronger for later chunks.
function tint(kind, chunk, chunks) {
  return kind === "R" ? 0.1 : 0.28 + (chunks > 1 ? (0.37 * chunk) / (chunks - 1) : 0);
}

// One path for each kind and chunk, and a row of microbatches' numbers per rank.
function lanes(data, done, lane, x, chunks) {
  const rows = new Map(); // by kind and chunk, for each rank: where its bars are
  done.ranks.forEach(({ ops, starts, ends }, rank) =>
    ops.forEach(([kind, , chunk], i) => {
      const what = `${kind}${chunk}`;
      if (!rows.has(what)) rows.set(what, { kind, chunk, spans: done.ranks.map(() => []) });
      rows.get(what).spans[rank].push([x(starts[i]), x(ends[i])]);
    }),
  );
  const middles = done.ranks.map((_, rank) => TOP + (rank + 0.5) * lane - 1.5);
  const wide = new Map([...rows].map(([what, { spans }]) => [what, spans[0][0][1] - spans[0][0][0]]));
  const narrowest = Math.min(...[...wide.values()].filter((width) => width > 0));
  const parts = [...rows.keys()].sort().map((what) => {
    const { kind, chunk, spans } = rows.get(what);
    const colour = data.colours[kind];
    const share = tint(kind, chunk, chunks);
    if (narrowest < NARROW) {
      const placed = middles.map((middle, rank) => [middle, spans[rank]]);
      return strips(placed, lane - 3, colour, share + 0.2); // no edges help
    }
    const places = spans.flatMap((row, rank) =>
      row.map(([left, right]) => [left, middles[rank] - lane / 2 + 1.5, right - left, lane - 3]),
    );
    return boxes(places, colour, share, narrowest >= 5 ? 1 : 0.5);
  });
  const m = done.ranks[0].ops.filter(([kind]) => kind === "F").length / chunks;
  const room = 7 * `${m - 1}`.length + 2; // where a kind's last number has none, its first have none
  done.ranks.forEach(({ ops, starts, ends }, rank) => {
    const named = ops.flatMap(([kind, i, chunk], n) =>
      wide.get(`${kind}${chunk}`) >= room ? [[x((starts[n] + ends[n]) / 2), `${i}`]] : [],
    );
    parts.push(numbers(named, middles[rank] + 4, 10));
  });
  return parts;
}

// The peak of each rank as a bar; of inputs alone, in a lighter tint.
function held(data, settings, { peaks }, lane) {
  const parts = [text(PANEL, TOP - 9, "most in flight", { size: 11 })];
  const most = Math.max(...peaks);
  const scale = 70 / most;
  const whole = ORDERS[settings.schedule].recomputes ? 1 : most;
  peaks.forEach((peak, rank) => {
    const top = TOP + rank * lane;
    const kept = PANEL + Math.min(peak, whole) * scale;
    const end = PANEL + peak * scale;
    parts.push(bar(PANEL, kept, top, lane - 3, data.colours.F));
    if (peak > whole) parts.push(bar(kept, end, top, lane - 3, data.colours.F, 0.1));
    parts.push(text(end + 6, top + lane / 2 + 2.5, short(peak), { size: 11 }));
  });
  return parts;
}

// -- the element ----------------------------------------------------------------------------------

// The picture and its sentence. Throws Impossible, with one sentence, for settings that can't be.
export function view(data, settings) {
  const done = numbersOf(data, settings);
  const sentence = sentenceOf(settings, done);
  return { svg: svgOf(data, settings, done, sentence), sentence };
}

define("schedule-explorer", view);
