"use strict";
// Narrows the page to steps by text and by mark, opens what a link leads to. The page reads without it.
(() => {
  const steps = [...document.querySelectorAll("article.step")];
  const filter = document.getElementById("filter");
  const narrow = [...document.querySelectorAll("button.narrow")];
  const shown = document.getElementById("shown");
  const openAll = document.getElementById("open-all");
  const places = new Map([...document.querySelectorAll(".strip a")].map((a) => [a.hash.slice(1), a]));
  const all = shown.textContent;
  let texts = null;

  const apply = () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const marks = narrow.filter((b) => b.ariaPressed === "true").map((b) => b.dataset.mark);
    if (words.length && !texts) texts = steps.map((step) => step.textContent.toLowerCase());
    let count = 0;
    steps.forEach((step, index) => {
      const fits =
        words.every((word) => texts[index].includes(word)) &&
        (!marks.length || marks.some((mark) => step.classList.contains(mark)));
      step.hidden = !fits;
      places.get(step.id)?.classList.toggle("out", !fits);
      count += fits;
    });
    shown.textContent = count === steps.length ? all : `${count} of ${all}`;
  };

  const goTo = () => {
    const target = document.getElementById(location.hash.slice(1));
    if (!target || !target.matches("article.step")) return;
    target.hidden = false;
    target.querySelector("details").open = true;
    target.scrollIntoView();
  };

  let waiting = 0;
  filter.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(apply, 120);
  });
  narrow.forEach((button) =>
    button.addEventListener("click", () => {
      button.ariaPressed = button.ariaPressed === "true" ? "false" : "true";
      apply();
    }),
  );
  openAll.addEventListener("click", () => {
    const open = openAll.textContent === "Open all";
    for (const step of steps) if (!step.hidden) step.querySelector("details").open = open;
    openAll.textContent = open ? "Close all" : "Open all";
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.target.matches("input")) return;
    event.preventDefault();
    filter.focus();
  });
  addEventListener("hashchange", goTo);
  goTo();
})();
