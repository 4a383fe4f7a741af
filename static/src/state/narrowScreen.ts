// Whether the screen is narrow: then panes stand one above the other, and the sidebar covers the page.

import { signal } from "@preact/signals";

/** The same width as in the style sheets. */
const narrow = matchMedia("(max-width: 52rem)");

export const isNarrow = signal(narrow.matches);

narrow.addEventListener("change", () => (isNarrow.value = narrow.matches));
