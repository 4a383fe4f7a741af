// Ways past the parser's largest regular expressions. A browser compiles those anew on every visit, which takes longer than all
// else that a screen of messages needs of the parser; and each of them is about something that most text is not, at a glance.

import type { MarkedExtension, Token, TokenizerThis, Tokens } from "marked";

/** For the parser to look closer. */
const CLOSER = false;

/** Lines, and one of `=` or `-` below them: a heading. Or so many lines that it is not looked for here, in each of them anew. */
const UNDERLINED = /^(?:[^\n]+\n){1,40}? {0,3}[=-]+[ \t]*(?:\n|$)|^(?:[^\n]+\n){41}/;
const WITH_A_DELIMITER_ROW = /^[^\n]+\n[ |:-]+(?:\n|$)/;
const QUOTED = /^ {0,3}>/;
const HTML = /^ {0,3}</;

/** A line that does not begin with what a list, a heading, a table or the like begins with. */
const PLAIN = "(?:\\*\\*|`)?[^\\s\\d#>*+=~`|<[_:-].*";
/** Such lines, and then an empty one or none: a paragraph. */
const PROSE = new RegExp(`^${PLAIN}(?:\\n${PLAIN})*(?=\\n\\n|\\n?$)`);

export const shortcuts: MarkedExtension = {
  tokenizer: {
    blockquote: (source) => (QUOTED.test(source) ? CLOSER : undefined),
    html: (source) => (HTML.test(source) ? CLOSER : undefined),
    table: (source) => (WITH_A_DELIMITER_ROW.test(source) ? CLOSER : undefined),
    lheading: (source) => (UNDERLINED.test(source) ? CLOSER : undefined),
  },
  extensions: [{ name: "prose", level: "block", tokenizer: prose }],
};

function prose(this: TokenizerThis, source: string, before: (Token | Tokens.Generic)[]): Tokens.Paragraph | undefined {
  // In a list it is no paragraph, and in a quotation it may go on with the one before it.
  if (!this.lexer.state.top || before.at(-1)?.type === "paragraph") return undefined;
  const text = PROSE.exec(source)?.[0];
  return text ? { type: "paragraph", raw: text, text, tokens: this.lexer.inline(text) } : undefined;
}
