// What pictures are made of: numbers as Python writes them, shapes as distlab.explorers.svg draws them.
// Shapes are strings; ink, lines and letters come from distlab as `look`.

// -- numbers as text ------------------------------------------------------------------------------

// Python's f"{x:.2f}": a tie goes to the even digit, where toFixed goes away from zero.
export function fixed(x, places) {
  const text = x.toFixed(places);
  if (x.toFixed(places + 1).at(-1) !== "5") return text;
  const tie = /^50*$/.test(x.toFixed(60).split(".")[1].slice(places));
  return tie && Number(text.at(-1)) % 2 ? (x - Math.sign(x) * 1e-9).toFixed(places) : text;
}

// Python's f"{x:.5g}" for numbers that are written out, neither tiny nor beyond their digits.
export function general(x, digits) {
  if (x === 0) return "0";
  const power = Number(x.toExponential(digits - 1).split("e")[1]);
  return trimmed(fixed(x, Math.max(digits - 1 - power, 0)));
}

export const commas = (x) => `${x}`.replace(/\B(?<!\.\d*)(?=(\d{3})+(?!\d))/g, ",");
export const trimmed = (text) => (text.includes(".") ? text.replace(/\.?0+$/, "") : text);
export const counted = (number, what, plural = "s") =>
  `${commas(number)} ${what}${number === 1 ? "" : plural}`;

// -- shapes ---------------------------------------------------------------------------------------

const ESCAPES = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;" };
const escape = (words) => words.replace(/[&<>"']/g, (letter) => ESCAPES[letter]);
const num = (x) => trimmed(fixed(x, 2)).replace(/^-0$/, "0");

// A picture that shrinks with the page; `alt` stands in for it where it isn't seen.
export function picture(width, height, alt, look, parts) {
  return (
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" role="img" ` +
    `aria-label="${escape(alt)}" font-family="${look.font}" font-size="12" fill="${look.ink}" ` +
    `style="display: block; width: 100%; max-width: ${width}px; height: auto">` +
    `<rect width="${width}" height="${height}" fill="white"/>${parts.join("")}</svg>`
  );
}

// A text whose baseline is at y; a white rim keeps it readable on lines.
export function text(x, y, words, { anchor = "start", size = 12, colour, bold = false } = {}) {
  return (
    `<text x="${num(x)}" y="${num(y)}" font-size="${size}"${colour ? ` fill="${colour}"` : ""}` +
    `${bold ? ' font-weight="bold"' : ""} text-anchor="${anchor}" paint-order="stroke" ` +
    `stroke="white" stroke-width="3" stroke-opacity="0.8">${escape(words)}</text>`
  );
}

export const line = (x0, y0, x1, y1, colour, more = "") =>
  `<path d="M${num(x0)} ${num(y0)}L${num(x1)} ${num(y1)}" fill="none" stroke="${colour}" ${more}/>`;
export const dashed = (x0, y0, x1, y1, colour) =>
  line(x0, y0, x1, y1, colour, 'stroke-width="1.5" stroke-dasharray="6 4"');

// A bar from x to x: a tint with the colour as its edge.
export const bar = (left, right, y, height, colour, opacity = 0.3) =>
  `<path d="M${num(left)} ${num(y)}H${num(right)}v${num(height)}H${num(left)}Z" ` +
  `fill="${colour}" fill-opacity="${num(opacity)}" stroke="${colour}" stroke-width="1.2"/>`;

// One path with a box at each [x, y, width, height], opaque: `share` of the colour.
export function boxes(places, colour, share, edge) {
  const shape = places.map(
    ([x, y, width, height]) =>
      `M${num(x)} ${num(y)}h${num(width)}v${num(height)}h-${num(width)}z`,
  );
  return (
    `<path d="${shape.join("")}" fill="${mixed(colour, share)}" stroke="${colour}" ` +
    `stroke-width="${edge}"/>`
  );
}

// Rows [middle, [[left, right], …]] of bars too narrow for an edge, as short a text as can be:
// places to a tenth, each from the one before; bars that touch become one.
export function strips(rows, height, colour, share) {
  const shape = [];
  for (const [middle, spans] of rows) {
    let at = null; // in tenths, so that rounding doesn't add up
    for (const [left, right] of spans) {
      const begin = Math.round(10 * left);
      const end = Math.round(10 * right);
      if (at === null) shape.push(`M${begin / 10} ${num(middle)}h${(end - begin) / 10}`);
      else if (begin > at) shape.push(`m${(begin - at) / 10} 0h${(end - begin) / 10}`);
      else if (end > at) shape.push(`h${(end - at) / 10}`);
      at = end;
    }
  }
  return (
    `<path d="${shape.join("")}" fill="none" stroke="${mixed(colour, share)}" ` +
    `stroke-width="${num(height)}"/>`
  );
}

// "#000000", 0.5 → "#808080"
function mixed(colour, share) {
  const channels = [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16));
  const light = channels.map((channel) => Math.round(255 - share * (255 - channel)));
  return `#${light.map((channel) => channel.toString(16).padStart(2, "0")).join("")}`;
}

// Whole numbers on one baseline, each in the middle of its x, as a single element: every digit has
// a place of its own, so however many there are, the picture stays small.
export function numbers(placed, y, size) {
  const wide = 0.64 * size;
  const digits = placed.map(([, number]) => number).join("");
  if (!digits) return "";
  const places = placed.flatMap(([x, number]) =>
    [...number].map((_, i) => (x + (i - (number.length - 1) / 2) * wide).toFixed(1)),
  );
  return (
    `<text x="${places.join(" ")}" y="${num(y)}" font-size="${size}" text-anchor="middle">` +
    `${digits}</text>`
  );
}

// Round numbers from 0 to `end`, at most `most + 1`; steps are 1, 2 or 5 times a power of ten.
export function ticks(end, most = 6) {
  if (end <= 0) return [0];
  const power = 10 ** Math.floor(Math.log10(end / most));
  const step = [1, 2, 5, 10]
    .map((k) => k * power)
    .find((step) => step * most >= end * (1 - 1e-9));
  const count = Math.floor((end / step) * (1 + 1e-9)) + 1;
  return Array.from({ length: count }, (_, i) => i * step);
}
