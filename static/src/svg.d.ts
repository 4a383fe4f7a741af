// An SVG file that is imported is its text.

declare module "*.svg" {
  const text: string;
  export default text;
}
