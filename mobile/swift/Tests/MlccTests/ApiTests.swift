import Foundation
import Testing

@testable import Mlcc
