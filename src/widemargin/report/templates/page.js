"use strict";
(() => {
  const { config, saved, specs } = JSON.parse(document.getElementById("widemargin-charts").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const mode = () => (dark.matches ? "dark" : "light");
  const chips = [...document.querySelectorAll(".chip")];
  const hidden = () => chips.filter((c) => c.getAttribute("aria-pressed") === "false").map((c) => c.dataset.arm);
  const views = new Map();
  let drawing = Promise.resolve();

  // The interpreter (ast) evaluates expressions without eval, which the policy of this page forbids.
  const options = (theme) => ({
    config: theme, ast: true, actions: false, renderer: "svg", defaultStyle: false,
    tooltip: { disableDefaultStyle: true },
  });

  async function draw() {
    for (const [id, spec] of Object.entries(specs)) {
      const place = document.getElementById(id);
      try {
        views.get(id)?.finalize();
        const drawn = await window.vegaEmbed(place, spec, options(config[mode()]));
        views.set(id, drawn);
        await drawn.view.signal("hidden", hidden()).runAsync();
        place.dataset.drawn = mode();
      } catch (error) {
        place.className = "chart failed";
        place.textContent = "This chart could not be drawn; its numbers are below.";
        console.error(error);
      }
    }
  }
  const redraw = () => { drawing = drawing.then(draw); };

  function filter() {
    const off = new Set(hidden());
    for (const { view } of views.values()) view.signal("hidden", [...off]).runAsync();
    for (const row of document.querySelectorAll("tr[data-arm]")) row.classList.toggle("off", off.has(row.dataset.arm));
    for (const gallery of document.querySelectorAll(".gallery")) gallery.hidden = off.has(gallery.dataset.arm);
  }
  for (const chip of chips) {
    chip.addEventListener("click", () => {
      chip.setAttribute("aria-pressed", String(chip.getAttribute("aria-pressed") === "false"));
      filter();
    });
  }

  // A saved chart stands alone: it is drawn once more, with its title and a legend inside.
  async function save(id, kind) {
    const place = document.createElement("div");
    const title = document.getElementById("t-" + id).textContent;
    const { autosize, ...spec } = specs[id];
    const drawn = await window.vegaEmbed(place, { ...spec, width: 680, title }, options(saved[mode()]));
    await drawn.view.signal("hidden", hidden()).runAsync();
    const link = document.createElement("a");
    link.download = id + "." + kind;
    link.href = kind === "svg"
      ? "data:image/svg+xml;charset=utf-8," + encodeURIComponent(await drawn.view.toSVG())
      : (await drawn.view.toCanvas(2)).toDataURL("image/png");
    link.click();
    drawn.finalize();
  }
  for (const button of document.querySelectorAll("[data-save]")) {
    button.addEventListener("click", () => save(button.dataset.chart, button.dataset.save));
  }

  dark.addEventListener("change", redraw);
  redraw();
})();
