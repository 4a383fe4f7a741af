// Markdown to HTML that is safe to show. Whatever an agent or a model wrote is untrusted.

import DOMPurify from "dompurify";
import { Marked, type Token } from "marked";
import { shortcuts } from "./shortcuts";

const marked = new Marked({ gfm: true, breaks: false }, shortcuts);

/** What may stand in a message. No images, forms, styles or ids: nothing that loads, submits, covers or collides. */
const ALLOWED = {
  ALLOWED_TAGS: [
    "a", "blockquote", "br", "code", "del", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "input", "li", "ol", "p",
    "pre", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul",
  ],
  ALLOWED_ATTR: ["align", "checked", "class", "disabled", "href", "rel", "start", "target", "title", "type"],
  ALLOWED_URI_REGEXP: /^(?:https?:|mailto:)/i,
  // Every other attribute is measured by that pattern too, unless it is named here.
  ADD_URI_SAFE_ATTR: ["align", "checked", "class", "disabled", "start", "type"],
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
};

marked.use({
  renderer: {
    // HTML is shown as it was written, which is mostly what its author meant; a line break within a table is the exception.
    html({ text, block }) {
      if (/^<br\s*\/?>$/i.test(text)) return "<br>";
      return block ? `<p>${escape(text)}</p>` : escape(text);
    },
    // An image becomes a link to it: loading it would tell its server who reads what.
    image({ href, text }) {
      return `<a href="${escape(href)}">${escape(text || href)}</a>`;
    },
  },
});

DOMPurify.addHook("afterSanitizeAttributes", (element) => {
  if (element.tagName === "A") {
    element.setAttribute("target", "_blank");
    element.setAttribute("rel", "noopener noreferrer nofollow");
  }
  if (element.tagName === "INPUT" && element.getAttribute("type") !== "checkbox") element.remove();
  if (element.tagName === "INPUT") {
    element.setAttribute("disabled", "");
    element.setAttribute("aria-label", element.hasAttribute("checked") ? "done" : "to do");
  }
  // Classes of our own would let a message dress up as a part of the page; highlighting needs the language only.
  const language = /^language-[\w+#.-]+$/.exec(element.getAttribute("class") ?? "");
  if (!language || element.tagName !== "CODE") element.removeAttribute("class");
});

export function render(markdown: string): string {
  return sanitize(marked.parse(markdown, { async: false }));
}

export function sanitize(html: string): string {
  return DOMPurify.sanitize(html, ALLOWED);
}

/** The blocks that a markdown text is made of. */
export function blocksOf(markdown: string): Token[] {
  return marked.lexer(markdown);
}

export function renderBlocks(blocks: Token[]): string {
  return sanitize(marked.parser(blocks));
}

function escape(text: string): string {
  return text.replace(/[&<>"']/g, (char) => `&#${char.charCodeAt(0)};`);
}
