// One item in detail: why it has its score, and what is like it.

const FIRST_REASONS = 8;
const SIMILAR = 8;

/**
 * Returns the lines of an explanation. Those beyond the first few are one line until asked for, so that what is on
 * show always adds up to the score.
 */
function reasonLines(answer, all) {
  const whole = all || answer.reasons.length <= FIRST_REASONS + 1; // a single one is no shorter than its summary
  const shown = whole ? answer.reasons : answer.reasons.slice(0, FIRST_REASONS);
  const rest = answer.reasons.slice(shown.length);
  const lines = shown.map((reason) => ({ name: nameElement(reason), value: reason.contribution, item: reason }));
  if (rest.length) {
    const sum = rest.reduce((total, reason) => total + reason.contribution, 0);
    lines.push({ name: counted(rest.length, "more item"), value: sum, kind: "rest" });
  }
  const own = answer.own === 0 ? "none for this user" : "learned for this user alone";
  lines.push({ name: "Global contribution", value: answer.crowd, kind: "general", note: "all items outside the history" });
  lines.push({ name: "User contribution", value: answer.own, kind: "general", note: own });
  return lines;
}

/** Returns a table of bars to both sides of zero that add up to the score. */
function reasonTable(answer, all, choose) {
  const lines = reasonLines(answer, all);
  const values = lines.map((line) => line.value);
  const decimals = decimalsOf([...values, answer.score]);
  const [low, high] = [Math.min(0, ...values), Math.max(0, ...values)];
  const width = high - low || 1;
  const bar = (value) => make("span", {
    class: `bar ${value < 0 ? "minus" : "plus"}`,
    variables: { "--from": (Math.min(value, 0) - low) / width, "--length": Math.abs(value) / width },
  });
  const named = (name, item) =>
    make("button", { type: "button", class: "reason-name", onclick: (event) => choose(item, event) }, name);
  const zero = { "--zero": -low / width };
  const rows = lines.map(({ name, value, kind = "one", note, item }) =>
    make("tr", { class: kind },
      make("th", { scope: "row" },
        item ? named(name, item) : name,
        note && make("span", { class: "reason-note" }, note)),
      make("td", { class: "bar-cell", "aria-hidden": "true", variables: zero }, value !== 0 && bar(value)),
      make("td", { class: "value" }, numberElement(value, decimals, true))));
  return make("table", { class: "reasons", "aria-label": "Contributions to the score" },
    make("tbody", {}, rows),
    make("tfoot", {}, make("tr", {},
      make("th", { scope: "row", colspan: 2 }, "Score, the sum of all lines"),
      make("td", { class: "value" }, numberElement(answer.score, decimals)))));
}

const remark = (text) => make("p", { class: "quiet" }, text);

class Detail {
  /**
   * @param actions `choose(item, event)`, `close()`, `pick(item)`, `canPick(item)` and `pickLabel()`.
   */
  constructor(actions) {
    this.actions = actions;
    this.head = make("div", { class: "detail-head" });
    const reasons = make("div");
    const similar = make("div");
    [this.reasons, this.similar] = [new Panel(reasons, 6), new Panel(similar, 4)];
    this.element = make("div", { class: "detail", id: "detail", role: "region", "aria-labelledby": "detail-name" },
      this.head,
      make("h3", { id: "why" }, "Why"), reasons,
      make("h3", {}, "Similar items"), similar);
    this.element.addEventListener("keydown", (event) => {
      if (event.key === "Escape") actions.close();
    });
  }

  /** Shows an item: `explain(signal)` asks for its reasons, or is null with the words for why not in `unable`. */
  show(item, { eyebrow, explain, unable, can, base }) {
    const same = this.key === keyOf(item.item_id);
    this.key = keyOf(item.item_id);
    this.title(item, eyebrow);
    if (explain) this.reasons.load(explain, (answer) => this.showReasons(answer), { keep: same });
    else this.reasons.fill(remark(unable));
    if (item.cold) this.similar.fill(remark("Nobody has this item yet, so nobody knows what is like it."));
    else if (can.similar) {
      this.similar.load(
        (signal) => service.ask(base + path`/items/${item.item_id}/similar?k=${SIMILAR}`, { signal }),
        (answer) => this.showSimilar(answer), { keep: same });
    } else this.similar.fill(remark("This method has no item embeddings to compare."));
  }

  /** Names the item once its title is known. */
  rename(item) {
    if (item.title && !this.item?.title && keyOf(item.item_id) === this.key) this.title(item, this.eyebrow);
  }

  title(item, eyebrow) {
    Object.assign(this, { item, eyebrow });
    const { pick, canPick, pickLabel, close } = this.actions;
    const focused = document.activeElement?.id === "detail-name";
    this.head.replaceChildren(
      make("p", { class: "eyebrow" }, make("bdi", {}, eyebrow)),
      make("h2", { id: "detail-name", tabindex: "-1" }, nameElement(item)),
      button("×", close, { class: "close", "aria-label": "Close the details", title: "Close (Esc)" }),
      make("p", { class: "detail-line" }, idElement(item),
        canPick(item) && button(pickLabel(), () => pick(item), { class: "link" })),
      ...[attributesElement(item)].filter(Boolean));
    if (focused) byId("detail-name")?.focus();
  }

  showReasons(answer, all = false) {
    this.rename(answer);
    const more = !all && answer.reasons.length > FIRST_REASONS + 1
      ? button(`Show all ${count(answer.reasons.length)}`, () => {
          this.showReasons(answer, true);
          this.reasons.body.querySelectorAll(".reason-name")[FIRST_REASONS]?.focus();
        }, { class: "link" })
      : null;
    this.reasons.fill(reasonTable(answer, all, this.actions.choose), more);
  }

  showSimilar(answer) {
    this.rename(answer);
    if (!answer.items.length) return this.similar.fill(remark("Nothing is similar to this item."));
    const list = new RankedList(this.actions.choose, { label: "Similar items" });
    list.show(answer.items);
    this.similar.fill(list.element);
  }
}
