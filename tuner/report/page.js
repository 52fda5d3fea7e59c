// The page works without this: links lead from everywhere to an operator's row. This marks the
// chosen operator in every place at once, sorts tables, and joins points with their plans.
"use strict";
{
  const bar = document.getElementById("selected");
  const rows = new Map();
  for (const row of document.querySelectorAll("#operators tr[data-op]")) {
    rows.set(row.dataset.op, row);
  }

  // The graph's boxes are "1-" and the operator's number.
  for (const box of document.querySelectorAll(".graph .operator")) {
    const op = box.id.replace("1-", "");
    if (!rows.has(op)) continue;
    box.dataset.op = op;
    box.tabIndex = 0;
    box.setAttribute("role", "button");
  }

  const places = (op) => [
    ["table", rows.get(op)],
    ["source", document.getElementById(`source-${op}`)],
    ["graph", document.getElementById(`1-${op}`)],
    ["plans", document.querySelector(`#trials tr[data-ops~="${op}"]`)],
  ].filter(([, place]) => place);

  function choose(op) {
    for (const one of document.querySelectorAll(".chosen-op")) one.classList.remove("chosen-op");
    bar.hidden = !op;
    if (!op) return;
    for (const one of document.querySelectorAll(`[data-op="${op}"], tr[data-ops~="${op}"]`)) {
      one.classList.add("chosen-op");
    }
    for (const edge of document.querySelectorAll(".graph [data-producer]")) {
      const ends = [edge.dataset.producer, edge.dataset.consumer];
      if (ends.includes(`1-${op}`)) edge.classList.add("chosen-op");
    }
    const name = document.createElement("code");
    name.textContent = `${op} ${rows.get(op).querySelector("code").textContent}`;
    const links = places(op).map(([text, place]) => {
      const link = document.createElement("button");
      link.textContent = text;
      link.onclick = () => {
        for (let up = place; up; up = up.parentElement) if (up.tagName === "DETAILS") up.open = true;
        place.scrollIntoView({ block: "center", inline: "center" });
      };
      return link;
    });
    const close = document.createElement("button");
    close.textContent = "×";
    close.title = "Choose none (Escape)";
    close.onclick = () => choose(null);
    bar.replaceChildren(name, ...links, close);
  }

  function showTrial(trial) {
    for (const one of document.querySelectorAll(".pointed")) one.classList.remove("pointed");
    if (!trial) return;
    for (const one of document.querySelectorAll(`[data-trial="${trial}"]`)) {
      one.classList.add("pointed");
    }
  }

  document.addEventListener("click", (event) => {
    const place = event.target.closest("[data-op]");
    if (!place || event.target.closest("summary, button") || !rows.has(place.dataset.op)) return;
    event.preventDefault();
    choose(place.classList.contains("chosen-op") ? null : place.dataset.op);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") choose(null);
    const box = event.target.closest?.(".graph .operator[data-op]");
    if (box && (event.key === "Enter" || event.key === " ")) {
      event.preventDefault();
      choose(box.dataset.op);
    }
  });
  document.addEventListener("mouseover", (event) => {
    showTrial(event.target.closest("[data-trial]")?.dataset.trial);
  });

  // What is not known sorts last.
  const value = (row, at) => {
    const cell = row.cells[at];
    if (cell.classList.contains("right")) return parseFloat(cell.dataset.value ?? "Infinity");
    return cell.textContent;
  };
  for (const head of document.querySelectorAll("thead th")) {
    const button = document.createElement("button");
    button.append(...head.childNodes);
    head.append(button);
    button.onclick = () => {
      const body = head.closest("table").tBodies[0];
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const sorted = [...body.rows].sort((one, other) => {
        const [a, b] = [value(one, head.cellIndex), value(other, head.cellIndex)];
        return (a < b ? -1 : a > b ? 1 : 0) * (down ? -1 : 1);
      });
      body.append(...sorted);
    };
  }

  // Where the page is narrow, a cell shows the name of its column: see page.css.
  for (const table of document.querySelectorAll("table")) {
    const columns = [...table.tHead.rows[0].cells].map((head) => head.textContent);
    for (const row of table.tBodies[0].rows) {
      for (const cell of row.cells) cell.dataset.column = columns[cell.cellIndex];
    }
    table.classList.add("named");
  }

  const named = /^#op-(\d+)$/.exec(location.hash);
  if (named && rows.has(named[1])) choose(named[1]);
}
