using System;
using System.Runtime.InteropServices;
using System.Threading;

namespace Weir
{
    /// <summary>What a call is inside of. It goes back when it is disposed of or forgotten and the last call has left
    /// it.</summary>
    internal abstract class Handle : SafeHandle
    {
        private int isInside;

        protected Handle(IntPtr pointer) : base(IntPtr.Zero, true) { SetHandle(pointer); }

        public override bool IsInvalid => handle == IntPtr.Zero;

        protected abstract void Destroy(IntPtr pointer);

        protected override bool ReleaseHandle()
        {
            Destroy(handle);
            Callbacks.Forget();
            return true;
        }

        internal bool TryEnter() => Interlocked.CompareExchange(ref isInside, 1, 0) == 0;

        internal void Leave() => Volatile.Write(ref isInside, 0);
    }

    /// <summary>An object of the library.</summary>
    public abstract class WeirObject : IDisposable
    {
        internal Handle Handle { get; private set; }

        /// <summary>A callback of which the library may go on calling, for as long as anything holds this.</summary>
        internal object Kept { get; set; }

        /// <summary>Gives it back. A call that is inside it ends first, and what was made from it lives on.</summary>
        public void Dispose() { Handle.Dispose(); }

        /// <summary>Somebody is inside. Of what one thread at a time may use, alone.</summary>
        internal Use Enter() => new Use(this, false);

        internal Use EnterAlone() => new Use(this, true);

        /// <summary>Takes over what a function has made, unless it failed.</summary>
        internal void Take(int status, Handle made, Arena a = null)
        {
            Handle = made;
            Kept = Kept ?? a?.Kept;
            try { Library.Check(status); }
            catch { made.Dispose(); throw; }
        }
    }

    internal struct Use : IDisposable
    {
        internal readonly IntPtr Pointer;
        private readonly Handle handle;
        private readonly bool isAlone;

        internal Use(WeirObject of, bool isAlone)
        {
            handle = of.Handle;
            this.isAlone = isAlone;
            if (handle.IsClosed)
                throw new ObjectDisposedException(of.GetType().Name);
            bool isAdded = false;
            handle.DangerousAddRef(ref isAdded);
            Pointer = handle.DangerousGetHandle();
            if (!isAlone || handle.TryEnter())
                return;
            handle.DangerousRelease();
            throw new WeirException(Status.Busy, "another call is inside this " + of.GetType().Name);
        }

        public void Dispose()
        {
            if (isAlone)
                handle.Leave();
            handle.DangerousRelease();
        }
    }
}
