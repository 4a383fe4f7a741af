// Fast paths around the parser's largest regular expressions. Browsers compile those on every
// visit, which costs more than all other parsing of a screen. A quick test shows that most text
// cannot match them.

import { Lexer, Tokenizer, type MarkedOptions, type Token, type TokenizerThis, type Tokens } from "marked";

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

class FastTokenizer extends Tokenizer {
  override blockquote(source: string) {
    return QUOTED.test(source) ? super.blockquote(source) : undefined;
  }

  override html(source: string) {
    return HTML.test(source) ? super.html(source) : undefined;
  }

  override table(source: string) {
    return WITH_A_DELIMITER_ROW.test(source) ? super.table(source) : undefined;
  }

  override lheading(source: string) {
    return UNDERLINED.test(source) ? super.lheading(source) : undefined;
  }
}

const OPTIONS: MarkedOptions = {
  gfm: true,
  breaks: false,
  tokenizer: new FastTokenizer(),
  extensions: { block: [prose], renderers: {}, childTokens: {} },
};

/** Parses markdown. Unlike `Marked`, the lexer alone brings no code that makes HTML. */
export const parseMarkdown = (markdown: string): Token[] => Lexer.lex(markdown, OPTIONS);

function prose(this: TokenizerThis, source: string, before: (Token | Tokens.Generic)[]): Tokens.Paragraph | undefined {
  // Inside a list it is no paragraph. Inside a quotation it may continue the previous one.
  if (!this.lexer.state.top || before.at(-1)?.type === "paragraph") return undefined;
  const text = PROSE.exec(source)?.[0];
  return text ? { type: "paragraph", raw: text, text, tokens: this.lexer.inline(text) } : undefined;
}
