// Draws every formula of the page; katex.min.js has come before.
for (const place of document.querySelectorAll(".math")) {
  const tex = place.textContent;
  try {
    katex.render(tex, place, { displayMode: place.tagName === "DIV", strict: "error" });
  } catch (problem) {
    place.textContent = tex; // better read as TeX than not at all
    console.error(`A formula can't be drawn: ${tex}`, problem.message);
  }
}
