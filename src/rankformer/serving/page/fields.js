// The search fields.

/** Makes the fields live: one chooses a user of the training data, the others items of a new one and new clicks. */
function makeFields({ chooseUser, pick }) {
  new Combobox({
    input: byId("user-input"),
    search: searchUsers,
    describe: (user) => [
      make("bdi", { class: "name" }, String(user.user_id)),
      make("span", { class: "quiet" }, counted(user.count, "item")),
    ],
    textOf: (user) => String(user.user_id),
    choose: (user) => chooseUser(String(user.user_id)),
    submit: chooseUser,
  });
  for (const id of ["item-input", "click-input"]) {
    new Combobox({
      input: byId(id),
      search: searchItems,
      describe: (item) => [
        make("span", { class: "what" }, nameElement(item), idElement(item)),
        make("span", { class: "quiet" }, count(item.count)),
      ],
      textOf: (item) => String(item.item_id),
      choose: pick,
    });
  }
}
