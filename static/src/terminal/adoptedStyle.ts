// Element in place of `<style>`. The content policy blocks the content of style elements, but not
// style sheets that a script constructs. `build.mjs` makes the emulator create this element.

export const ADOPTED_STYLE = "adopted-style";

class AdoptedStyle extends HTMLElement {
  private readonly adopted = new CSSStyleSheet();

  connectedCallback(): void {
    if (!document.adoptedStyleSheets.includes(this.adopted)) document.adoptedStyleSheets.push(this.adopted);
  }

  disconnectedCallback(): void {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((sheet) => sheet !== this.adopted);
  }

  override set textContent(css: string) {
    this.adopted.replaceSync(css);
  }
}

if (!customElements.get(ADOPTED_STYLE)) customElements.define(ADOPTED_STYLE, AdoptedStyle);
