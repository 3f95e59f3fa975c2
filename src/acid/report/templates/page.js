"use strict";
(() => {
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  document.getElementById("theme").addEventListener("click", () => {
    const now = root.dataset.theme || (dark.matches ? "dark" : "light");
    root.dataset.theme = now === "dark" ? "light" : "dark";
  });

  // Tooltips: by pointer, by touch, and by the arrow keys inside a figure.
  const tip = document.getElementById("tip");
  let active = null;
  function hide() {
    tip.hidden = true;
    if (active) active.classList.remove("active");
    active = null;
  }
  function tell(mark) {
    hide();
    active = mark;
    mark.classList.add("active");
    tip.textContent = mark.dataset.tip;
    tip.hidden = false;
    const place = (mark.querySelector("circle:not(.hit), rect:not(.hit)") || mark).getBoundingClientRect();
    const own = tip.getBoundingClientRect();
    const left = Math.min(Math.max(8, place.left + place.width / 2 - own.width / 2), innerWidth - own.width - 8);
    const above = place.top - own.height - 10;
    tip.style.left = `${left}px`;
    tip.style.top = `${above > 8 ? above : place.bottom + 10}px`;
  }
  for (const svg of document.querySelectorAll("figure svg")) {
    const marks = [...svg.querySelectorAll(".mark")];
    svg.addEventListener("pointerover", (event) => {
      const mark = event.target.closest(".mark");
      if (mark) tell(mark);
    });
    svg.addEventListener("pointerleave", hide);
    svg.addEventListener("blur", hide);
    svg.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (event.key === "Escape") hide();
      if (!step || !marks.length) return;
      event.preventDefault();
      const at = marks.indexOf(active);
      tell(marks[at < 0 ? (step > 0 ? 0 : marks.length - 1) : (at + step + marks.length) % marks.length]);
    });
  }
  addEventListener("scroll", () => { if (active) tell(active); }, { passive: true });

  // Films: one clock for all tracks of a reel.
  for (const reel of document.querySelectorAll("figure.reel")) {
    const told = JSON.parse(reel.querySelector("script.film").textContent);
    const range = reel.querySelector("input"), output = reel.querySelector("output"), play = reel.querySelector(".play");
    const bars = [...reel.querySelectorAll(".bar")];
    const tracks = [...reel.querySelectorAll(".track")].map((element, k) => {
      const image = new Image();
      image.onload = show;
      image.src = told.films[k].source;
      return { image, film: told.films[k], canvas: element.querySelector("canvas"), note: element.querySelector(".note") };
    });
    let clock = null;
    function show() {
      const tick = Number(range.value);
      for (const { image, film, canvas, note } of tracks) {
        const at = Math.min(tick, film.index.length - 1), frame = film.index[at];
        if (image.complete && image.naturalWidth) {
          const x = (frame % film.columns) * film.width, y = Math.floor(frame / film.columns) * film.height;
          canvas.getContext("2d").drawImage(image, x, y, film.width, film.height, 0, 0, film.width, film.height);
        }
        note.textContent = film.notes.length ? film.notes[Math.min(at, film.notes.length - 1)] : "\u00a0";
      }
      output.textContent = `frame ${tick} / ${told.ticks - 1}`;
      range.setAttribute("aria-valuetext", `frame ${tick} of ${told.ticks - 1}`);
      const step = Math.ceil(tick / told.per) - 1;
      for (const bar of bars) bar.classList.toggle("now", Number(bar.dataset.step) === step);
    }
    function stop() {
      clearInterval(clock);
      clock = null;
      play.textContent = "Play";
    }
    range.addEventListener("input", () => { stop(); show(); });
    play.addEventListener("click", () => {
      if (clock) return stop();
      if (Number(range.value) >= told.ticks - 1) range.value = 0;
      play.textContent = "Pause";
      const pause = Math.max(60, Math.min(700, 6000 / told.ticks));
      clock = setInterval(() => {
        if (Number(range.value) >= told.ticks - 1) return stop();
        range.value = Number(range.value) + 1;
        show();
      }, pause);
      show();
    });
    for (const bar of bars) bar.addEventListener("click", () => {
      stop();
      range.value = Math.min(told.ticks - 1, (Number(bar.dataset.step) + 1) * told.per);
      show();
    });
    range.value = told.ticks - 1; // a still film shows how it ended
    show();
  }

  for (const button of document.querySelectorAll(".copy")) button.addEventListener("click", async () => {
    const text = button.parentElement.querySelector("code").textContent;
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      const range = document.createRange();
      range.selectNodeContents(button.parentElement.querySelector("code"));
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
})();
