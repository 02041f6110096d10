//! Models, and what is made from them.
use crate::*;
use std::path::Path;

impl Model {
    /// Opens a GGUF file. It must not become shorter while the model lives, see [`sys::weir_model_open`].
    pub fn open(runtime: &Runtime, path: impl AsRef<Path>, options: &ModelOptions) -> Result<Model> {
        let (raw, mut texts) = (options.ready()?, Texts::default());
        let path = texts.keep("path", path.as_ref().as_os_str().as_encoded_bytes());
        texts.check()?;
        Model::made(runtime.clone(), |out| unsafe { sys::weir_model_open(runtime.0.raw, path, &raw, out) })
    }
    /// Key and value number `index` of the file, the value as text; the number of keys is
    /// [`metadata_count`](Model::metadata_count).
    pub fn metadata(&self, index: u32) -> Result<(Cow<'_, str>, Vec<u8>)> {
        let key = Cell::new(ptr::null());
        let value = list(64, |out: *mut u8, room, n| unsafe {
            sys::weir_model_metadata(self.0.raw, index, key.as_ptr(), out.cast(), room, n)
        })?;
        Ok((unsafe { text(key.get()) }, value))
    }
    /// Turns tokens into text one by one, see [`sys::weir_detokenizer_create`].
    pub fn detokenizer(&self, flags: DetokenizeFlags) -> Result<Detokenizer> {
        let create = |out: *mut _| unsafe { sys::weir_detokenizer_create(self.0.raw, flags.0, out) };
        Handle::new(self.clone(), |raw| unsafe { sys::weir_detokenizer_destroy(raw) }, create).map(Detokenizer)
    }
    /// Creates a session, a conversation; it takes exactly the bytes of the [`plan`](Model::plan).
    pub fn session(&self, options: &SessionOptions) -> Result<Session> {
        let options = options.ready()?;
        Session::new(self.clone(), None, |out| unsafe { sys::weir_session_create(self.0.raw, &options, out) })
    }
}

/// Turns tokens into text one by one; never splits a character. It keeps its model alive.
pub struct Detokenizer(pub(crate) Handle<sys::weir_detokenizer, Model>);
// SAFETY: it needs no thread of its own.
unsafe impl Send for Detokenizer {}
