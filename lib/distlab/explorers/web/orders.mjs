// The orders of a pipeline: for each of p ranks the ops [kind, microbatch, chunk] that it runs one after
// the other, for m microbatches. Kinds: F forward, B backward, R forward again, and W the weights'
// gradient where it is an op of its own.

export const ORDERS = {
  "naive": { of: (p, m) => ranks(p, () => range(m).flatMap((i) => [["F", i, 0], ["B", i, 0]])) },
  "GPipe": { of: (p, m) => loopedBfs(p, m, 1) },
  "GPipe, recomputing": {
    recomputes: true,
    of: (p, m) =>
      ranks(p, () => [
        ...ops("F", m, 0),
        ...range(m).flatMap((i) => [["R", i, 0], ["B", i, 0]]),
      ]),
  },
  "1F1B": { of: oneFOneB },
  "interleaved 1F1B": { chunked: true, of: interleaved },
  "looped BFS": { chunked: true, of: loopedBfs },
  "ZB-H1": { splits: true, of: (p, m) => ranks(p, (s) => putOff(m, p - s, s)) },
  "ZB-H2": { splits: true, of: (p, m) => ranks(p, (s) => putOff(m, 2 * (p - s) - 1, 2 * s)) },
  "PipeDream, no flush": { endless: true, of: oneFOneB },
};

export const range = (n) => Array.from({ length: n }, (_, i) => i);
const ranks = (p, orderOf) => range(p).map(orderOf);
const ops = (kind, m, chunk) => range(m).map((i) => [kind, i, chunk]);

function oneFOneB(p, m) {
  return ranks(p, (s) => alternate(ops("F", m, 0), ops("B", m, 0), Math.min(m, p - s)));
}

// Microbatches go through the chunks in groups of p.
function interleaved(p, m, v) {
  if (v === 1) return oneFOneB(p, m);
  const grouped = (kind, chunks) =>
    range(m / p).flatMap((g) =>
      chunks.flatMap((chunk) => range(p).map((i) => [kind, g * p + i, chunk])),
    );
  const forward = grouped("F", range(v));
  const backward = grouped("B", range(v).reverse());
  return ranks(p, (s) =>
    alternate(forward, backward, Math.min(m * v, 2 * (p - 1 - s) + (v - 1) * p + 1)),
  );
}

// All microbatches through a chunk, then the next; with one chunk, GPipe.
function loopedBfs(p, m, v) {
  const there = range(v).flatMap((chunk) => ops("F", m, chunk));
  const back = range(v).reverse().flatMap((chunk) => ops("B", m, chunk));
  return ranks(p, () => [...there, ...back]);
}

// `first` of the F, then B and F in turn while there are F, then the rest of the B.
function alternate(forward, backward, first) {
  const turns = forward.slice(first).flatMap((op, i) => [backward[i], op]);
  return [...forward.slice(0, first), ...turns, ...backward.slice(forward.length - first)];
}

// `first` F, then rounds of B, W of `behind` microbatches ago, F; then the other W.
function putOff(m, first, behind) {
  const order = ops("F", m, 0).slice(0, first);
  for (let i = 0; i < m; i++) {
    order.push(["B", i, 0]);
    if (i >= behind) order.push(["W", i - behind, 0]);
    if (first + i < m) order.push(["F", first + i, 0]);
  }
  return [...order, ...ops("W", m, 0).slice(Math.max(0, m - behind))];
}
