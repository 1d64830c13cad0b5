// The frame of an explorer: controls, and below them a picture and its sentence. As an element of a
// page it needs no Python; it stands in a shadow root, so that no page's style gets into it.

// Settings that can't be: the message is the sentence that stands in place of the picture.
export class Impossible extends Error {}

// Makes <memory-explorer> and the like out of view(data, settings) → { svg, sentence }. A script in the
// element holds `data` as JSON; what else is in it stands where no script runs.
export function define(name, view) {
  if (!globalThis.customElements || customElements.get(name)) return;
  class Explorer extends HTMLElement {
    connectedCallback() {
      if (this.shadowRoot) return;
      const data = JSON.parse(this.querySelector("script").textContent);
      const show = mount(this, data, (settings) => show(shown(() => view(data, settings))));
      show(shown(() => view(data, data.start)));
    }
  }
  customElements.define(name, Explorer);
}

export function shown(view) {
  try {
    return view();
  } catch (reason) {
    if (reason instanceof Impossible) return { impossible: reason.message };
    throw reason;
  }
}

// Puts controls into a place, and returns the function that shows { svg, sentence } or
// { impossible } below them. `changed` is called with all settings whenever a reader changes one.
export function mount(place, { name, controls, start }, changed) {
  const settings = { ...start };
  const style = Object.assign(document.createElement("style"), { textContent: STYLE });
  const form = document.createElement("form");
  const figure = document.createElement("figure");
  const drawing = document.createElement("div");
  const words = document.createElement("figcaption");
  words.setAttribute("role", "status"); // read out when it changes
  form.setAttribute("aria-label", name);
  form.addEventListener("submit", (event) => event.preventDefault());
  const shade = () => handles.forEach((handle) => handle.shade());
  const handles = controls.map((control) =>
    handle(control, settings, () => (shade(), changed({ ...settings }))),
  );
  shade();
  form.append(...handles.map(({ row }) => row));
  figure.append(drawing, words);
  place.attachShadow({ mode: "open" }).append(style, form, figure);
  place.setAttribute("data-lm-suppress-shortcuts", "true"); // JupyterLab: our keys are not its own
  return ({ svg, sentence, impossible }) => {
    drawing.innerHTML = svg ?? "";
    words.textContent = sentence ?? impossible;
    words.className = svg ? "" : "impossible";
  };
}

// A labelled control: `values` are what it offers, `texts` how they read, and `only` names the
// settings under which it changes anything, { other setting: [its values] }; it is grey elsewhere.
function handle({ name, label, kind, values, texts, only }, settings, changed) {
  const at = values.indexOf(settings[name]);
  const row = document.createElement("div");
  const input = document.createElement(kind === "menu" ? "select" : "input");
  const words = Object.assign(document.createElement("label"), { htmlFor: name });
  words.textContent = label;
  row.append(words, input);
  input.id = name;
  let told = () => {};
  if (kind === "slider") {
    Object.assign(input, { type: "range", min: 0, max: values.length - 1, step: 1, value: at });
    const value = document.createElement("span");
    value.setAttribute("aria-hidden", "true"); // a reader hears the slider's own value
    told = (text) => {
      value.textContent = text;
      input.setAttribute("aria-valuetext", text);
    };
    row.append(value);
  } else if (kind === "tick") {
    Object.assign(input, { type: "checkbox", checked: at === 1 });
  } else {
    input.append(...texts.map((text, i) => new Option(text, i, i === at, i === at)));
  }
  told(texts[at]);
  input.addEventListener("input", () => {
    const i = kind === "tick" ? Number(input.checked) : Number(input.value);
    settings[name] = values[i];
    told(texts[i]);
    changed();
  });
  const shade = () => {
    const matters = Object.entries(only).every(([other, those]) => those.includes(settings[other]));
    input.disabled = !matters;
    row.className = matters ? kind : `${kind} idle`;
  };
  return { row, shade };
}

const STYLE = `
  :host { display: block; max-width: 720px; margin: 4px 0 1em; font-size: 0.95em; line-height: 1.4; }
  form { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(19em, 100%), 1fr));
         gap: 0.1em 1.5em; margin: 0; }
  form > div { display: flex; align-items: center; gap: 0.6em; min-height: 2em; }
  .idle { opacity: 0.5; }
  label { flex: 0 0 8.5em; }
  .tick label { flex: 0 1 auto; order: 1; }
  input, select { margin: 0; font: inherit; color: inherit; }
  input[type="range"], select { flex: 1; min-width: 0; }
  select { padding: 0.15em; background: transparent; border: 1px solid currentColor;
           border-radius: 3px; }
  option { color: black; background: white; }
  span { flex: 0 0 3.6em; text-align: right; font-variant-numeric: tabular-nums; }
  figure { max-width: 680px; margin: 0.7em 0 0; }
  figcaption { min-height: 2.8em; padding-top: 0.4em; }
  .impossible { box-sizing: border-box; min-height: 15em; padding: 1em; border: 1px solid #999; }
`;
