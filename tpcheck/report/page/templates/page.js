"use strict";
for (const own of document.querySelectorAll(".js")) own.hidden = false;
const box = document.getElementById("text");
if (box) box.addEventListener("input", () => {
  const sought = box.value.toLowerCase();
  for (const row of document.querySelectorAll("tr[data-verdict]"))
    row.hidden = !row.textContent.toLowerCase().includes(sought);
});
document.addEventListener("click", event => {
  const button = event.target.closest("button[data-copy]");
  if (!button) return;
  const text = document.getElementById(button.dataset.copy).textContent;
  const done = said => { button.textContent = said; };
  if (navigator.clipboard) navigator.clipboard.writeText(text).then(() => done("copied"), () => done("not allowed"));
  else done("not allowed");
});
const open = () => {
  const target = location.hash && document.getElementById(location.hash.slice(1));
  if (target) for (const own of target.querySelectorAll(":scope > details.whole")) own.open = true;
};
addEventListener("hashchange", open);
open();
