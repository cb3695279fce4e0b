"use strict";
// The colours of the page, and buttons that copy. Everything here is a comfort: without it the page reads the same.
(() => {
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const words = { "": "system", light: "light", dark: "dark" };

  const kept = () => {
    try { return localStorage.getItem("assay-colours") || ""; } catch { return ""; } // a browser may forbid it
  };
  const show = (theme) => {
    if (theme) root.dataset.theme = theme; else delete root.dataset.theme;
    button.textContent = `Colours: ${words[theme]}`;
  };

  let theme = kept() in words ? kept() : "";
  show(theme);
  button.hidden = false;
  button.addEventListener("click", () => {
    const order = Object.keys(words);
    theme = order[(order.indexOf(theme) + 1) % order.length];
    show(theme);
    try { localStorage.setItem("assay-colours", theme); } catch { /* kept for this page only */ }
  });

  const copied = async (text) => {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      const area = document.createElement("textarea"); // older browsers, and pages that may not ask
      area.value = text;
      document.body.append(area);
      area.select();
      const done = document.execCommand("copy");
      area.remove();
      return done;
    }
  };
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button.copy");
    if (!button) return;
    const done = await copied(button.parentElement.querySelector("code").textContent);
    button.textContent = done ? "Copied" : "Not copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
    button.focus();
  });
  for (const each of document.querySelectorAll("button.copy")) each.hidden = false;
})();
