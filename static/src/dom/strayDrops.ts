// Files dropped outside of a drop zone. Without this handler a browser leaves the page to show the
// file.

import { hasFiles } from "../components/DropZone";

for (const type of ["dragover", "drop"] as const) {
  addEventListener(type, (event) => {
    if (event.defaultPrevented || !event.dataTransfer || !hasFiles(event)) return;
    event.preventDefault();
    event.dataTransfer.dropEffect = "none";
  });
}
