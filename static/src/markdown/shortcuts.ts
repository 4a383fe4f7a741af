// Ways past the parser's largest regular expressions. A browser compiles those anew on every visit, which takes longer than all
// else that a screen of messages needs of the parser; and each of them is about something that most text is not, at a glance.

import type { MarkedExtension } from "marked";

/** For the parser to look closer. */
const CLOSER = false;

/** Lines, and one of `=` or `-` below them: a heading. */
const UNDERLINED = /^(?:[^\n]+\n)+? {0,3}[=-]+[ \t]*(?:\n|$)/;
const WITH_A_DELIMITER_ROW = /^[^\n]+\n[ |:-]+(?:\n|$)/;
const QUOTED = /^ {0,3}>/;
const HTML = /^ {0,3}</;

export const shortcuts: MarkedExtension = {
  tokenizer: {
    blockquote: (source) => (QUOTED.test(source) ? CLOSER : undefined),
    html: (source) => (HTML.test(source) ? CLOSER : undefined),
    table: (source) => (WITH_A_DELIMITER_ROW.test(source) ? CLOSER : undefined),
    lheading: (source) => (UNDERLINED.test(source) ? CLOSER : undefined),
  },
};
