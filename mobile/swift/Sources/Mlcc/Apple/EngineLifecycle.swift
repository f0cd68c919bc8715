#if canImport(UIKit)
import UIKit

/// Tells an engine when the app goes to the background and when memory is short. Untried: no Apple
/// system has compiled it.
///
///     let lifecycle = EngineLifecycle(engine)   // keep it as long as the engine
///
/// A memory warning empties the engine's prefix cache, and in the background it also makes the
/// engine refuse requests. In the background the model is unloaded if it was loaded with
/// ``EngineOptions/unloadInBackground``. In the foreground again, all is as before.
@MainActor
public final class EngineLifecycle {
    private let engine: Engine
    private var observers: [any NSObjectProtocol] = []
    private var isHidden = false

    /// Starts listening.
    public init(_ engine: Engine) {
        self.engine = engine
        observe(UIApplication.didEnterBackgroundNotification) { $0.hide(true) }
        observe(UIApplication.willEnterForegroundNotification) { $0.hide(false) }
        observe(UIApplication.didReceiveMemoryWarningNotification) { $0.warn() }
    }

    /// Stops listening.
    public func detach() {
        for observer in observers { NotificationCenter.default.removeObserver(observer) }
        observers = []
    }

    private func observe(
        _ name: Notification.Name, _ action: @escaping @MainActor @Sendable (EngineLifecycle) -> Void
    ) {
        let observer = NotificationCenter.default.addObserver(
            forName: name, object: nil, queue: .main
        ) { [weak self] _ in
            MainActor.assumeIsolated {
                if let self { action(self) }
            }
        }
        observers.append(observer)
    }

    private func hide(_ isHidden: Bool) {
        self.isHidden = isHidden
        engine.background(isHidden)
        if !isHidden { engine.trim(.none) }
    }

    private func warn() { engine.trim(isHidden ? .refuse : .cache) }
}
#endif
