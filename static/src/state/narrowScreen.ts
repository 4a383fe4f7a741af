// Detection of a narrow screen. Workspace and sidebar cover the page there.

import { signal } from "@preact/signals";

/** Same width as in the style sheets. */
const narrow = matchMedia("(max-width: 52rem)");

export const isNarrow = signal(narrow.matches);

narrow.addEventListener("change", () => (isNarrow.value = narrow.matches));
