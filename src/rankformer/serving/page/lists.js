// Lists of items: ranked, seen, picked, similar.

const MOVE = { duration: 280, easing: "cubic-bezier(.2, .7, .2, 1)" };

/** Returns where each score lies between the lowest (or zero) and the highest, from 0 to 1. */
function fractionsOf(scores) {
  const lowest = Math.min(0, ...scores);
  const range = Math.max(...scores, 0) - lowest;
  return scores.map((score) => (range > 0 ? (score - lowest) / range : 0));
}

/** Returns the rank of each entry by its key. */
const ranksOf = (entries) => new Map(entries.map((entry) => [keyOf(entry.item_id), entry.rank]));

/** Returns in words how two lists differ. */
function differenceOf(first, second) {
  const ranks = ranksOf(second);
  const both = first.filter((entry) => ranks.has(keyOf(entry.item_id)));
  const same = both.filter((entry) => ranks.get(keyOf(entry.item_id)) === entry.rank);
  if (same.length === first.length && first.length === second.length) return "Both lists are the same.";
  return `${both.length} of ${counted(first.length, "item")} in both lists, ${same.length} at the same rank.`;
}

const topOf = (element) => element.getBoundingClientRect().top;

class RankedList {
  /**
   * @param onchoose is called with an entry and the event when it is clicked.
   * @param controls the id of what a row opens; @param onpick is called with an entry when its plus is pressed.
   */
  constructor(onchoose, { label, controls = null, onpick = null } = {}) {
    Object.assign(this, { onchoose, onpick, controls, ranks: new Map(), rows: new Map() });
    this.element = make("ol", { class: "ranked", "aria-label": label });
    moveWithArrows(this.element, ".row");
  }

  /**
   * Shows these entries.
   * @param seen keys of items to be marked as known to the user.
   * @param pickable whether each row has a plus.
   * @param compare whether to say which items are new or have moved since the last time.
   * @param beside the entries of another list, to mark what differs from it.
   */
  show(entries, { seen = new Set(), compare = false, pickable = false, beside = null } = {}) {
    const before = beside ? ranksOf(beside) : compare ? this.ranks : null;
    this.unknown = beside ? "only here" : "new";
    const tops = new Map([...this.rows].filter(([, row]) => row.isConnected).map(([key, row]) => [key, topOf(row)]));
    const decimals = decimalsOf(entries.map((entry) => entry.score));
    const fractions = fractionsOf(entries.map((entry) => entry.score));
    const rows = entries.map((entry, index) => {
      const known = seen.has(keyOf(entry.item_id));
      return this.row(entry, fractions[index], decimals, { known, before, pickable: pickable && !known && !entry.cold });
    });
    this.rows = new Map(entries.map((entry, index) => [keyOf(entry.item_id), rows[index]]));
    this.ranks = ranksOf(entries);
    this.element.replaceChildren(...rows);
    if (compare && !REDUCED_MOTION.matches) this.animate(tops);
  }

  row(entry, fraction, decimals, { known, before, pickable }) {
    const opens = this.controls ? { "aria-expanded": "false", "aria-controls": this.controls } : {};
    const onclick = (event) => this.onchoose(entry, event);
    const row = make("button", { type: "button", class: "row", onclick, ...opens },
      make("span", { class: "rank" }, String(entry.rank)),
      make("span", { class: "what" },
        nameElement(entry),
        idElement(entry),
        known && make("span", { class: "tag" }, "seen"),
        entry.cold && make("span", { class: "tag", title: "No interactions yet: scored by its attributes" }, "new item"),
        this.movement(entry, before),
        attributesElement(entry)),
      numberElement(entry.score, decimals),
      make("span", { class: "meter", "aria-hidden": "true", variables: { "--fraction": fraction } }));
    const words = { "aria-label": `Add ${nameOf(entry)} to the history`, title: "Add to the history" };
    const plus = pickable && button("+", () => this.onpick(entry), { class: "pick", ...words });
    return make("li", {}, make("div", { class: "row-line" }, row, plus));
  }

  /** Returns how an entry moved since the last time, or against the other list, in words and with an arrow. */
  movement(entry, before) {
    if (!before?.size) return null;
    const rank = before.get(keyOf(entry.item_id));
    if (rank === undefined) return make("span", { class: "moved new" }, this.unknown);
    if (rank === entry.rank) return null;
    const [way, arrow] = rank > entry.rank ? ["up", "▲"] : ["down", "▼"];
    const steps = Math.abs(rank - entry.rank);
    return make("span", { class: `moved ${way}`, "aria-label": `${way} ${steps}` }, `${arrow} ${steps}`);
  }

  animate(tops) {
    for (const [key, row] of this.rows) {
      const steps = tops.has(key)
        ? [{ transform: `translateY(${tops.get(key) - topOf(row)}px)` }, { transform: "none" }]
        : [{ opacity: 0 }, { opacity: 1 }];
      row.animate(steps, MOVE);
    }
  }

  /** Marks one entry as the one whose details are on show; returns its row, if it is in the list. */
  select(id) {
    for (const row of this.rows.values()) row.querySelector(".row").setAttribute("aria-expanded", "false");
    const row = id === null ? undefined : this.rows.get(keyOf(id));
    row?.querySelector(".row").setAttribute("aria-expanded", "true");
    return row;
  }

  /** Moves the focus to the entry at a position, or to the last one before it. */
  focus(position, selector) {
    const stops = this.element.querySelectorAll(selector);
    stops[Math.min(position, stops.length - 1)]?.focus();
  }
}

/** Returns a plain list of items, the first `shown` of them until the rest is asked for. */
function itemList(items, { onchoose, onremove = null, shown, label }) {
  const list = make("ul", { class: "items", "aria-label": label });
  const rows = items.map((item) => {
    const choose = { type: "button", class: "item", onclick: (event) => onchoose(item, event) };
    const words = { "aria-label": `Remove ${nameOf(item)}`, title: "Remove" };
    return make("li", {},
      make("button", choose, nameElement(item), idElement(item)),
      onremove && button("×", () => onremove(item), { class: "remove", ...words }));
  });
  list.append(...rows.slice(0, shown));
  moveWithArrows(list, ".item");
  if (rows.length <= shown) return [list];
  const more = button(`Show all ${count(rows.length)}`, () => {
    list.append(...rows.slice(shown));
    more.remove();
    rows[shown].querySelector(".item").focus();
  }, { class: "link" });
  return [list, more];
}
