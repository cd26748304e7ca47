// Type-ahead: a text field with suggestions, by the keyboard as well as by the pointer.

const PAUSE = 120; // milliseconds of no typing before the service is asked

class Combobox {
  /**
   * @param input the field, with its suggestions beside it in the page.
   * @param search gets the text and a signal, returns the promise of an array.
   * @param describe returns what to show of one entry.
   * @param textOf returns the text that means exactly this entry.
   * @param choose is called with the chosen entry.
   * @param submit is called with the text when Enter finds no suggestion.
   */
  constructor({ input, search, describe, textOf, choose, submit }) {
    const box = input.parentElement.querySelector(".suggestions");
    Object.assign(this, { input, search, describe, textOf, choose, submit, box });
    Object.assign(this, { list: box.querySelector("ul"), note: box.querySelector("p") });
    Object.assign(this, { entries: [], active: -1, timer: null, question: null, waitingForEnter: false });
    input.addEventListener("input", () => this.later());
    input.addEventListener("click", () => this.box.hidden && this.ask());
    input.addEventListener("keydown", (event) => this.key(event));
    input.addEventListener("blur", () => this.close());
    box.addEventListener("pointerdown", (event) => event.preventDefault()); // keeps the focus in the field
  }

  later() {
    clearTimeout(this.timer);
    this.question?.abort();
    this.question = new AbortController(); // the entries on show are of another text now
    this.timer = setTimeout(() => this.ask(), PAUSE);
  }

  async ask() {
    clearTimeout(this.timer);
    this.timer = null;
    this.question?.abort();
    const { signal } = (this.question = new AbortController());
    const text = this.input.value.trim();
    this.open();
    if (!this.entries.length) this.note.textContent = "Searching …";
    try {
      const entries = await this.search(text, signal);
      if (!signal.aborted) this.show(entries, text);
    } catch (error) {
      if (!signal.aborted) this.show([], text, wordsFor(error).filter(Boolean).map(sentence).join(" "));
    }
  }

  show(entries, text, problem = "") {
    this.question = null;
    // What was typed exactly comes first, so that Enter means it.
    const exact = (entry) => this.textOf(entry) === text;
    this.entries = [...entries.filter(exact), ...entries.filter((entry) => !exact(entry))];
    this.list.replaceChildren(...this.entries.map((entry, index) =>
      make("li", {
        role: "option", id: `${this.list.id}-${index}`, "aria-selected": "false", onclick: () => this.take(index),
      }, this.describe(entry))));
    const nothing = text ? `Nothing matches “${text}”.` : "There is nothing to choose from.";
    this.note.textContent = problem || (this.entries.length ? "" : nothing);
    this.mark(text && this.entries.length ? 0 : -1);
    if (this.waitingForEnter) this.enter();
  }

  open() {
    this.box.hidden = false;
    this.input.setAttribute("aria-expanded", "true");
  }

  close() {
    clearTimeout(this.timer);
    this.timer = null;
    this.question?.abort();
    this.question = null;
    this.waitingForEnter = false;
    this.box.hidden = true;
    this.entries = [];
    this.list.replaceChildren();
    this.note.textContent = "";
    this.input.setAttribute("aria-expanded", "false");
    this.mark(-1);
  }

  mark(index) {
    this.list.children[this.active]?.setAttribute("aria-selected", "false");
    this.active = index;
    const option = this.list.children[index];
    option?.setAttribute("aria-selected", "true");
    option?.scrollIntoView({ block: "nearest" });
    if (option) this.input.setAttribute("aria-activedescendant", option.id);
    else this.input.removeAttribute("aria-activedescendant");
  }

  key(event) {
    const last = this.entries.length - 1;
    if (event.isComposing) return;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (this.box.hidden) return void this.ask();
      const down = event.key === "ArrowDown";
      this.mark(down ? (this.active >= last ? 0 : this.active + 1) : (this.active <= 0 ? last : this.active - 1));
    } else if (event.key === "Enter") {
      event.preventDefault();
      this.enter();
    } else if (event.key === "Escape") {
      if (this.box.hidden) this.input.value = "";
      this.close();
    }
  }

  enter() {
    const text = this.input.value.trim();
    if (this.question) {
      // Typed faster than answered: the choice is made when the suggestions for this text are here.
      this.waitingForEnter = true;
      if (this.timer) this.ask();
      return;
    }
    this.waitingForEnter = false;
    if (this.entries[this.active]) this.take(this.active);
    else if (text) {
      this.close();
      this.submit?.(text);
    }
  }

  take(index) {
    const entry = this.entries[index];
    this.input.value = "";
    this.close();
    this.choose(entry);
  }
}
