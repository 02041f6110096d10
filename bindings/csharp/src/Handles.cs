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

        /// <summary>A callback that the library may go on calling, for as long as anything holds this.</summary>
        internal object Kept { get; set; }

        /// <summary>What goes back with it, and whose callback it takes over where it is made.</summary>
        internal WeirObject owned, from;

        /// <summary>Gives it back. A call that is inside it ends first, and what was made from it lives on.</summary>
        public void Dispose()
        {
            Handle?.Dispose();
            owned?.Dispose();
        }

        /// <summary>Somebody is inside; alone, where one thread at a time may use it.</summary>
        internal Use Enter() => new Use(this, false);

        internal Use EnterAlone() => new Use(this, true);

        /// <summary>Takes over what a function has made, unless it failed; inside of what it was made from.</summary>
        internal void Take(int status, Handle made, Arena a = null)
        {
            Handle = made;
            Kept = from?.Kept ?? a?.Kept;
            try { Library.Check(status); }
            catch { made.Dispose(); throw; }
        }
    }

    internal struct Use : IDisposable
    {
        internal readonly IntPtr Pointer;
        private readonly WeirObject of;
        private readonly bool isAlone;

        internal Use(WeirObject of, bool isAlone)
        {
            this.of = of;
            this.isAlone = isAlone;
            if (of.Handle.IsClosed)
                throw new ObjectDisposedException(of.GetType().Name);
            bool isAdded = false;
            of.Handle.DangerousAddRef(ref isAdded);
            Pointer = of.Handle.DangerousGetHandle();
            if (!isAlone || of.Handle.TryEnter())
                return;
            of.Handle.DangerousRelease();
            throw new WeirException(Status.Busy, "another call is inside this " + of.GetType().Name);
        }

        public void Dispose()
        {
            if (isAlone)
                of.Handle.Leave();
            of.Handle.DangerousRelease();
            GC.KeepAlive(of); // and with it what it keeps, such as a function that the call calls back
        }
    }
}
