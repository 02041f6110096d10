// Sets the chosen theme before anything is painted; a plain script, since modules run after the first paint.
// "system" leaves the choice to prefers-color-scheme.
(() => {
  let theme = "system";
  try {
    theme = localStorage.getItem("weir.theme") || "system";
  } catch {
    // Storage is switched off: the system's choice.
  }
  document.documentElement.dataset.theme = ["light", "dark"].includes(theme) ? theme : "system";
})();
