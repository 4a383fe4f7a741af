// Rendering of markdown to Preact elements. Text of agents and models is untrusted and never
// becomes HTML. It ends as text or as one of the attributes below. No element loads, submits,
// covers or collides with anything.

import type { ComponentChild, ComponentChildren } from "preact";
import type { MarkedToken, Token, Tokens } from "marked";
import { Fence } from "../components/Fence";
import { useScrollFocus } from "../dom/scrollFocus";
import { decodeReferences } from "./references";
import { parseMarkdown } from "./fastPaths";

/** Limit of nesting. Deeper text is shown as source, because each level uses stack. */
const MAX_DEPTH = 100;

const LINK_PROTOCOLS = new Set(["http:", "https:", "mailto:"]);
const LINE_BREAK = /^<br\s*\/?>$/i;
/** Allowed class suffix. Other classes would let a message imitate the page. */
const LANGUAGE = /^[\w+#.-]+$/;

/** Context of a token. */
interface TokenContext {
  depth: number;
  /** Growing code is not highlighted. */
  open: boolean;
  /** A link inside a link is text, because a click would be ambiguous. */
  inLink: boolean;
  /** Depths of the headings around the next one, outermost first. Changed by each heading. */
  outline: number[];
  /** Text direction by the first strong letter: per paragraph, or per item or quotation. */
  dir: "auto" | undefined;
}

/** Returns the context inside an item or a quotation, which sets the direction. */
const insideDirection = (place: TokenContext): TokenContext => ({ ...place, dir: undefined });

/** Parses markdown into blocks. */
export function blocksOf(markdown: string): Token[] {
  try {
    return parseMarkdown(markdown);
  } catch {
    // The parser recurses and has a limit. A text beyond it is shown as source.
    return [{ type: "unreadable", raw: markdown }];
  }
}

/**
 * Renders a block, or `null` if nothing is visible. `open`: more of it will come. `outline`: depths
 * of the headings before it, which the block's own headings change.
 */
export function drawBlock(block: Token, open: boolean, outline: number[]): ComponentChild {
  const drawn = draw(block, { depth: 0, open, inLink: false, outline, dir: "auto" });
  return typeof drawn === "string" || Array.isArray(drawn) ? <p class="plain" dir="auto">{drawn}</p> : drawn;
}

function drawAll(tokens: readonly Token[], place: TokenContext): ComponentChild[] {
  if (place.depth >= MAX_DEPTH) return tokens.map(({ raw }) => raw);
  const within = { ...place, depth: place.depth + 1 };
  return tokens.flatMap((token) => draw(token, within));
}

function draw(token: Token, place: TokenContext): ComponentChild | ComponentChild[] {
  const known = token as MarkedToken;
  switch (known.type) {
    case "space":
    case "def":
      return null;
    case "paragraph":
      return <p dir={place.dir}>{drawAll(known.tokens, place)}</p>;
    case "heading": {
      const Heading = `h${headingLevel(place.outline, known.depth)}` as "h2";
      return <Heading dir={place.dir}>{drawAll(known.tokens, place)}</Heading>;
    }
    case "blockquote":
      return <blockquote dir="auto">{drawAll(known.tokens, insideDirection(place))}</blockquote>;
    case "list":
      return list(known, place);
    case "checkbox":
      return [<input type="checkbox" disabled defaultChecked={known.checked} aria-label={known.checked ? "done" : "to do"} />, " "];
    case "table":
      return <ScrollingTable>{table(known, place)}</ScrollingTable>;
    case "code":
      return code(known, place);
    case "hr":
      return <hr />;
    case "html":
      return html(known, place);
    case "text":
      return known.tokens ? drawAll(known.tokens, place) : decodeReferences(known.text);
    case "escape":
      return known.text;
    case "strong":
      return <strong>{drawAll(known.tokens, place)}</strong>;
    case "em":
      return <em>{drawAll(known.tokens, place)}</em>;
    case "del":
      return <del>{drawAll(known.tokens, place)}</del>;
    case "codespan":
      return <code dir="ltr">{known.text}</code>;
    case "br":
      return <br />;
    case "link":
      return link(known, place);
    case "image":
      return image(known, place);
    default:
      return token.raw;
  }
}

/**
 * Returns the level of a heading. The page's own heading is the first level, and no level is
 * skipped, whatever depths the text uses.
 */
function headingLevel(outline: number[], depth: number): number {
  while (outline.length > 0 && outline.at(-1)! >= depth) outline.pop();
  outline.push(depth);
  return Math.min(6, outline.length + 1);
}

function list({ ordered, start, items }: Tokens.List, place: TokenContext): ComponentChild {
  const drawn = items.map(({ tokens }) => <li dir="auto">{drawAll(tokens, insideDirection(place))}</li>);
  if (!ordered) return <ul>{drawn}</ul>;
  return <ol start={start === "" || start === 1 ? undefined : start}>{drawn}</ol>;
}

function table({ header, rows }: Tokens.Table, place: TokenContext): ComponentChild {
  return (
    <table>
      <thead>
        <tr>
          {header.map(({ align, tokens }) => (
            <th align={align ?? undefined} dir="auto">{drawAll(tokens, place)}</th>
          ))}
        </tr>
      </thead>
      {rows.length > 0 && (
        <tbody>
          {rows.map((row) => (
            <tr>
              {row.map(({ align, tokens }) => (
                <td align={align ?? undefined} dir="auto">{drawAll(tokens, place)}</td>
              ))}
            </tr>
          ))}
        </tbody>
      )}
    </table>
  );
}

function ScrollingTable({ children }: { children: ComponentChildren }) {
  return (
    <div class="wide" ref={useScrollFocus("Table")}>
      {children}
    </div>
  );
}

function code({ raw, lang, text }: Tokens.Code, { open }: TokenContext): ComponentChild {
  const name = decodeReferences(/^\S*/.exec(lang ?? "")?.[0] ?? "");
  const language = LANGUAGE.test(name) ? name : undefined;
  return <Fence key={open ? "open" : raw} text={text} language={language} open={open} />;
}

/**
 * Shows HTML as source, which is what most authors mean. A line break in a table is the exception.
 */
function html({ text, block }: Tokens.HTML | Tokens.Tag, { dir }: TokenContext): ComponentChild {
  if (LINE_BREAK.test(text)) return <br />;
  return block ? <p dir={dir}>{text}</p> : text;
}

function link({ href, title, text, tokens, autolink }: Tokens.Link, place: TokenContext): ComponentChild | ComponentChild[] {
  const label = autolink ? text : drawAll(tokens, { ...place, inLink: true });
  if (place.inLink) return label;
  // An autolink's address is its text, so references stay as written.
  return anchor(autolink ? href : decodeReferences(href), title ? decodeReferences(title) : undefined, label);
}

/** Renders an image as a link. Loading it would reveal the reader to its server. */
function image({ href, text }: Tokens.Image, { inLink }: TokenContext): ComponentChild {
  const label = decodeReferences(text || href);
  return inLink ? label : anchor(decodeReferences(href), undefined, label);
}

function anchor(href: string, title: string | undefined, label: ComponentChildren): ComponentChild {
  return (
    <a href={externalAddress(href)} title={title} target="_blank" rel="noopener noreferrer nofollow">
      {label}
    </a>
  );
}

/**
 * Returns the address as the browser parses it, if it leads out. The visible address is the
 * followed one.
 */
function externalAddress(href: string): string | undefined {
  try {
    const address = new URL(href);
    return LINK_PROTOCOLS.has(address.protocol) ? address.href : undefined;
  } catch {
    return undefined;
  }
}
