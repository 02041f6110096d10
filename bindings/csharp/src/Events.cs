using System;
using System.Collections.Generic;
using System.Runtime.CompilerServices;
using System.Threading;
using System.Threading.Tasks;

namespace Weir
{
    /// <summary>A CancellationToken that stops the calls of a session for a time.</summary>
    internal sealed class Stop : IDisposable
    {
        private readonly Session session;
        private readonly CancellationToken token;
        private readonly CancellationTokenRegistration registration;

        internal Stop(Session session, CancellationToken token)
        {
            this.session = session;
            this.token = token;
            token.ThrowIfCancellationRequested();
            if (token.CanBeCanceled)
                registration = token.Register(state => Set((Session)state), session);
        }

        private static void Set(Session session)
        {
            try
            {
                session.Cancel();
            }
            catch (ObjectDisposedException)
            {
                // There is nothing left to stop.
            }
        }

        /// <summary>As Library.Check; what the token has stopped is its exception.</summary>
        internal void Check(int status)
        {
            if (status == Native.WEIR_ERR_CANCELLED && !Callbacks.HasFailed)
                token.ThrowIfCancellationRequested();
            Library.Check(status);
        }

        internal void AfterEnd(Event end)
        {
            if (end.Stop == StopReason.Cancelled)
                token.ThrowIfCancellationRequested();
        }

        /// <summary>What the token has stopped must not stop the next call.</summary>
        public void Dispose()
        {
            if (!token.CanBeCanceled)
                return;
            registration.Dispose(); // which waits for Set
            if (token.IsCancellationRequested && !session.Handle.IsClosed)
                session.ClearCancel();
        }
    }

    public sealed partial class Session
    {
        /// <summary>Begins an answer; its events, the last of kind End. It may be left at any of them. A token that is
        /// cancelled ends it with StopReason.Cancelled, and after that event with OperationCanceledException; each
        /// token whose event came is in the conversation, and no other.</summary>
        public IEnumerable<Event> Events(GenerateOptions options = null,
                                         CancellationToken token = default(CancellationToken))
        {
            token.ThrowIfCancellationRequested();
            Begin(options);
            return Rest(token);
        }

        private IEnumerable<Event> Rest(CancellationToken token)
        {
            using (var stop = new Stop(this, token))
            {
                Event next;
                do
                {
                    next = Next();
                    yield return next;
                }
                while (next.Kind != EventKind.End);
                stop.AfterEnd(next);
            }
        }

#if NET8_0_OR_GREATER
        /// <summary>The same, computed in threads of the pool.</summary>
        public async IAsyncEnumerable<Event> EventsAsync(GenerateOptions options = null,
                                                         [EnumeratorCancellation] CancellationToken token = default)
        {
            using (var stop = new Stop(this, token))
            {
                await Task.Run(() => Begin(options), CancellationToken.None).ConfigureAwait(false);
                Event next;
                do
                {
                    next = await Task.Run(Next, CancellationToken.None).ConfigureAwait(false);
                    yield return next;
                }
                while (next.Kind != EventKind.End);
                stop.AfterEnd(next);
            }
        }
#endif
    }
}
