"use strict";
(() => {
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  // More of them opened at once fill hundreds of sheets of paper.
  const PRINTED = 50;

  for (const element of all(".script")) element.hidden = false;

  async function copy(text, code) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      // Browsers that keep the clipboard from local files copy a selection.
      const range = document.createRange();
      range.selectNodeContents(code);
      const selection = getSelection();
      selection.removeAllRanges();
      selection.addRange(range);
      return document.execCommand("copy");
    }
  }

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button.copy");
    if (!button) return;
    const code = button.previousElementSibling;
    const done = await copy(code.textContent, code);
    button.textContent = done ? "Copied" : "Press Ctrl+C";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });

  // The parts of a contract are in the page once; where they are asked for they are
  // shown in place.
  function fill(details) {
    const from = document.getElementById(details.dataset.from);
    const parts = from && from.querySelector(".parts");
    if (parts && !details.querySelector(".parts")) {
      details.lastElementChild.replaceWith(parts.cloneNode(true));
    }
  }
  document.addEventListener("toggle", (event) => {
    const details = event.target;
    if (details.matches("details.promise") && details.open) fill(details);
  }, true);

  function reveal() {
    const id = decodeURIComponent(location.hash.slice(1));
    const target = id && document.getElementById(id);
    if (target && target.matches("details")) {
      target.hidden = false;
      target.open = true;
      target.querySelector("summary").focus({preventScroll: true});
      target.scrollIntoView();
    }
  }
  addEventListener("hashchange", reveal);
  reveal();

  const findings = all("details.finding");
  const filter = document.getElementById("filter");
  if (filter) {
    const count = document.getElementById("count");
    const kernel = document.getElementById("kernel");
    const rows = all(".grades tbody tr");
    const heads = findings.map((f) => (f.id + " " + f.querySelector("summary").textContent
      + " " + f.querySelector(".sign").title).toLowerCase());
    const choose = () => {
      const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
      const name = kernel ? kernel.value : "";
      const others = (element) => Boolean(name) && element.dataset.kernel !== name;
      let shown = 0;
      findings.forEach((finding, i) => {
        finding.hidden = others(finding) || !words.every((word) => heads[i].includes(word));
        shown += finding.hidden ? 0 : 1;
      });
      for (const row of rows) row.hidden = others(row);
      count.textContent = words.length || name ? `${shown} of ${findings.length}` : "";
    };
    filter.addEventListener("input", choose);
    if (kernel) kernel.addEventListener("change", choose);
    const open = (state) => {
      for (const finding of findings) if (!finding.hidden) finding.open = state;
    };
    document.getElementById("open-all").addEventListener("click", () => open(true));
    document.getElementById("close-all").addEventListener("click", () => open(false));
  }

  let opened = [];
  addEventListener("beforeprint", () => {
    const shown = findings.filter((finding) => !finding.hidden);
    const chosen = shown.length <= PRINTED ? shown : [];
    opened = [...chosen, ...all("details.searched, details.contract, details.keys")]
      .filter((details) => !details.open);
    for (const details of opened) details.open = true;
  });
  addEventListener("afterprint", () => {
    for (const details of opened) details.open = false;
    opened = [];
  });
})();
