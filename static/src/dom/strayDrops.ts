// Files that are dropped beside all that takes them: a browser would leave the page to show them.

import { isFiles } from "./components/DropZone";

for (const type of ["dragover", "drop"] as const) {
  addEventListener(type, (event) => {
    if (event.defaultPrevented || !event.dataTransfer || !isFiles(event)) return;
    event.preventDefault();
    event.dataTransfer.dropEffect = "none";
  });
}
