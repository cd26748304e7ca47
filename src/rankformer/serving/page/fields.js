// The two search fields.

/** Makes the fields live: one chooses a user of the training data, the other picks items for the new user. */
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
  new Combobox({
    input: byId("item-input"),
    search: searchItems,
    describe: (item) => [
      make("span", { class: "what" }, nameElement(item), idElement(item)),
      make("span", { class: "quiet" }, count(item.count)),
    ],
    textOf: (item) => String(item.item_id),
    choose: pick,
  });
}
