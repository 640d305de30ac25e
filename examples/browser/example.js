const form = document.querySelector("form");
const bar = form.querySelector("progress");
const output = form.querySelector("output");

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const { url, token, subject, file: input } = form.elements;
  const [file] = input.files;
  try {
    const { uploadFile } = await uploaderOf(url.value);
    const receipt = await uploadFile(file, {
      token: token.value,
      subject: subject.value,
      headers: { filename: file.name },
      onProgress: (done, total) => { bar.value = done / total; },
    });
    output.value = `Message ${receipt.sequence} of ${subject.value}`;
  } catch (error) {
    output.value = error.message;
  }
});

// A page that knows its host just writes: import { uploadFile } from "https://mts.example/web/upload.js";
async function uploaderOf(url) {
  try {
    return await import(new URL("/web/upload.js", url).href);
  } catch {
    throw new Error(`Cannot load the uploader from ${url}: is ${origin} in the host's server.cors_origins?`);
  }
}
