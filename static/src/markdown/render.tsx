// Markdown to what Preact draws. Whatever an agent or a model wrote is untrusted, and no HTML of it is made: it ends as text, or
// as one of the attributes that are named here. Nothing that loads, submits, covers or collides is among the elements.

import type { ComponentChild, ComponentChildren } from "preact";
import { Marked, type MarkedToken, type Token, type Tokens } from "marked";
import { Code } from "../components/Code";
import { useReach } from "../reach";
import { decoded } from "./references";
import { shortcuts } from "./shortcuts";

const marked = new Marked({ gfm: true, breaks: false }, shortcuts);

/** What is nested deeper is shown as it was written: nobody reads it, and drawing each level takes some of the stack. */
const DEEPEST = 100;

const OUTWARD = new Set(["http:", "https:", "mailto:"]);
const LINE_BREAK = /^<br\s*\/?>$/i;
/** Other classes would let a message dress up as a part of the page. */
const LANGUAGE = /^[\w+#.-]+$/;

/** Where a token stands. */
interface Place {
  depth: number;
  /** Of what still grows, code has no colours yet. */
  open: boolean;
  /** Of a link within a link, nobody could say which of them is followed: it is text. */
  inLink: boolean;
  /** To the left or to the right, as its first letter has it: each paragraph by itself, in an item or a quotation as that does. */
  dir: "auto" | undefined;
}

/** Where an item or a quotation says which way its text goes. */
const inside = (place: Place): Place => ({ ...place, dir: undefined });

/** The blocks that a markdown text is made of. */
export function blocksOf(markdown: string): Token[] {
  try {
    return marked.lexer(markdown);
  } catch {
    // The parser calls itself for what is nested, and has an end to how deep: such a text is shown as it stands.
    return [{ type: "unreadable", raw: markdown }];
  }
}

/** One block as it is shown, if there is anything to see of it. `open` while more of it is to come. */
export function shown(block: Token, open: boolean): ComponentChild {
  const drawn = draw(block, { depth: 0, open, inLink: false, dir: "auto" });
  return typeof drawn === "string" || Array.isArray(drawn) ? <p class="plain" dir="auto">{drawn}</p> : drawn;
}

function drawAll(tokens: readonly Token[], place: Place): ComponentChild[] {
  if (place.depth >= DEEPEST) return tokens.map(({ raw }) => raw);
  const within = { ...place, depth: place.depth + 1 };
  return tokens.flatMap((token) => draw(token, within));
}

function draw(token: Token, place: Place): ComponentChild | ComponentChild[] {
  const known = token as MarkedToken;
  switch (known.type) {
    case "space":
    case "def":
      return null;
    case "paragraph":
      return <p dir={place.dir}>{drawAll(known.tokens, place)}</p>;
    case "heading": {
      const Heading = `h${known.depth}` as "h1";
      return <Heading dir={place.dir}>{drawAll(known.tokens, place)}</Heading>;
    }
    case "blockquote":
      return <blockquote dir="auto">{drawAll(known.tokens, inside(place))}</blockquote>;
    case "list":
      return list(known, place);
    case "checkbox":
      return [<input type="checkbox" disabled defaultChecked={known.checked} aria-label={known.checked ? "done" : "to do"} />, " "];
    case "table":
      return <Wide>{table(known, place)}</Wide>;
    case "code":
      return code(known, place);
    case "hr":
      return <hr />;
    case "html":
      return html(known, place);
    case "text":
      return known.tokens ? drawAll(known.tokens, place) : decoded(known.text);
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

function list({ ordered, start, items }: Tokens.List, place: Place): ComponentChild {
  const drawn = items.map(({ tokens }) => <li dir="auto">{drawAll(tokens, inside(place))}</li>);
  if (!ordered) return <ul>{drawn}</ul>;
  return <ol start={start === "" || start === 1 ? undefined : start}>{drawn}</ol>;
}

function table({ header, rows }: Tokens.Table, place: Place): ComponentChild {
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

function Wide({ children }: { children: ComponentChildren }) {
  return (
    <div class="wide" ref={useReach("Table")}>
      {children}
    </div>
  );
}

function code({ raw, lang, text }: Tokens.Code, { open }: Place): ComponentChild {
  const name = decoded(/^\S*/.exec(lang ?? "")?.[0] ?? "");
  const written = <code class={LANGUAGE.test(name) ? `language-${name}` : undefined}>{text && `${text.replace(/\n$/, "")}\n`}</code>;
  // What is in coloured code is not Preact's any more: another text is another element.
  return open ? <pre dir="ltr">{written}</pre> : <Code key={raw}>{written}</Code>;
}

/** HTML is shown as it was written, which is mostly what its author meant; a line break within a table is the exception. */
function html({ text, block }: Tokens.HTML | Tokens.Tag, { dir }: Place): ComponentChild {
  if (LINE_BREAK.test(text)) return <br />;
  return block ? <p dir={dir}>{text}</p> : text;
}

function link({ href, title, text, tokens, autolink }: Tokens.Link, place: Place): ComponentChild | ComponentChild[] {
  const label = autolink ? text : drawAll(tokens, { ...place, inLink: true });
  if (place.inLink) return label;
  // In an address that is its own text, nothing stands for anything else.
  return anchor(autolink ? href : decoded(href), title ? decoded(title) : undefined, label);
}

/** An image becomes a link to it: loading it would tell its server who reads what. */
function image({ href, text }: Tokens.Image, { inLink }: Place): ComponentChild {
  const label = decoded(text || href);
  return inLink ? label : anchor(decoded(href), undefined, label);
}

function anchor(href: string, title: string | undefined, label: ComponentChildren): ComponentChild {
  return (
    <a href={outward(href)} title={title} target="_blank" rel="noopener noreferrer nofollow">
      {label}
    </a>
  );
}

/** The address as a browser reads it, if it leads out of here: what is looked at is what is followed. */
function outward(href: string): string | undefined {
  try {
    const address = new URL(href);
    return OUTWARD.has(address.protocol) ? address.href : undefined;
  } catch {
    return undefined;
  }
}
