// An explorer whose pictures come from a kernel: the controls here, what they show by distlab's views.

import { mount } from "./frame.mjs";

export default {
  render({ model, el }) {
    const place = Object.assign(document.createElement("div"), { className: "kernel-explorer" });
    const data = { ...model.get("about"), start: model.get("settings") };
    const show = mount(place, data, (settings) => {
      model.set("settings", settings);
      model.save_changes();
    });
    const redraw = () => show(model.get("shown"));
    model.on("change:shown", redraw);
    redraw();
    el.append(place);
    return () => model.off("change:shown", redraw);
  },
};
