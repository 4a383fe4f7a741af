// Fast paths around the parser's largest regular expressions. Browsers compile those on every
// visit, which costs more than all other parsing of a screen. A quick test shows that most text
// cannot match them.

import type { MarkedExtension, Token, TokenizerThis, Tokens } from "marked";

/** Result that makes the parser look closer. */
const FULL_PARSE = false;

/**
 * Heading underlined with `=` or `-`. After 40 lines the full parser decides, which avoids a scan
 * per line.
 */
const UNDERLINED = /^(?:[^\n]+\n){1,40}? {0,3}[=-]+[ \t]*(?:\n|$)|^(?:[^\n]+\n){41}/;
const WITH_A_DELIMITER_ROW = /^[^\n]+\n[ |:-]+(?:\n|$)/;
const QUOTED = /^ {0,3}>/;
const HTML = /^ {0,3}</;

/** Line that starts no list, heading, table or similar block. */
const PLAIN = "(?:\\*\\*|`)?[^\\s\\d#>*+=~`|<[_:-].*";
/** Plain lines up to a blank line or the end: a paragraph. */
const PROSE = new RegExp(`^${PLAIN}(?:\\n${PLAIN})*(?=\\n\\n|\\n?$)`);

export const fastPaths: MarkedExtension = {
  tokenizer: {
    blockquote: (source) => (QUOTED.test(source) ? FULL_PARSE : undefined),
    html: (source) => (HTML.test(source) ? FULL_PARSE : undefined),
    table: (source) => (WITH_A_DELIMITER_ROW.test(source) ? FULL_PARSE : undefined),
    lheading: (source) => (UNDERLINED.test(source) ? FULL_PARSE : undefined),
  },
  extensions: [{ name: "prose", level: "block", tokenizer: prose }],
};

function prose(this: TokenizerThis, source: string, before: (Token | Tokens.Generic)[]): Tokens.Paragraph | undefined {
  // Inside a list it is no paragraph. Inside a quotation it may continue the previous one.
  if (!this.lexer.state.top || before.at(-1)?.type === "paragraph") return undefined;
  const text = PROSE.exec(source)?.[0];
  return text ? { type: "paragraph", raw: text, text, tokens: this.lexer.inline(text) } : undefined;
}
