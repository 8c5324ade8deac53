// Applies edits as editors do. Reads {before, edits} a line, writes the text after them a line, as JSON.
import { createInterface } from "node:readline";
import { TextDocument } from "vscode-languageserver-textdocument";

for await (const line of createInterface({ input: process.stdin })) {
  const { before, edits } = JSON.parse(line);
  const document = TextDocument.create("file:///document", "plaintext", 1, before);
  console.log(JSON.stringify(TextDocument.applyEdits(document, edits)));
}
